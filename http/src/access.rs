//! Who may do what: a role for each request.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderValue;
use axum::http::request::Parts;

use crate::Operation;
use crate::problem::Problem;
use crate::token::{Token, Tokens};

/// What a caller may do; a later role may do all that an earlier one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May ask whether the program is live and ready, and nothing else.
    Anonymous,
    /// May look at runs and their histories, payloads included.
    Reader,
    /// May also start, signal, update and end what runs.
    Operator,
}

impl Role {
    /// The role's name, as the documents have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Reader => "reader",
            Self::Operator => "operator",
        }
    }
}

/// Decides the role of each request. A cheap clone. There is no default: who may look into a program is the choice
/// of that program.
///
/// ```
/// use millrun_http::{Access, Role};
///
/// let access = Access::by(|request| match request.headers.get("x-team") {
///     Some(team) if team == "operations" => Role::Operator,
///     Some(_) => Role::Reader,
///     None => Role::Anonymous,
/// });
/// ```
#[derive(Clone)]
pub struct Access(Arc<Rule>);

enum Rule {
    Everybody(Role),
    By(Box<dyn Fn(&Parts) -> Role + Send + Sync>),
    Tokens(Tokens),
}

impl Access {
    /// Every caller that reaches the router may look, and change nothing.
    #[must_use]
    pub fn read_only() -> Self {
        Self(Arc::new(Rule::Everybody(Role::Reader)))
    }

    /// Every caller that reaches the router may do everything.
    #[must_use]
    pub fn operator() -> Self {
        Self(Arc::new(Rule::Everybody(Role::Operator)))
    }

    /// Callers that send the token for reading may look, those that send the one for operating may do everything,
    /// and others are told to send one. Without a token for it nobody has the role.
    ///
    /// A token is sent as `authorization: Bearer ..`; a page trades it for a cookie once (the operation `session`).
    /// The comparison takes the same time whatever is sent, and neither tokens nor cookies are logged.
    #[must_use]
    pub fn token(reading: impl Into<Option<Token>>, operating: impl Into<Option<Token>>) -> Self {
        let (reading, operating) = (reading.into(), operating.into());
        let tokens = Tokens::new(reading.as_ref(), operating.as_ref());
        Self(Arc::new(Rule::Tokens(tokens)))
    }

    /// A function decides, of the request's head: method, path, headers, and what layers before the router have put
    /// into its extensions. It is called once per request, before anything but `Host` and `Origin` is looked at,
    /// and must not block.
    #[must_use]
    pub fn by(role: impl Fn(&Parts) -> Role + Send + Sync + 'static) -> Self {
        Self(Arc::new(Rule::By(Box::new(role))))
    }

    pub(crate) fn role(&self, request: &Parts) -> Role {
        match &*self.0 {
            Rule::Everybody(role) => *role,
            Rule::By(role) => role(request),
            Rule::Tokens(tokens) => tokens.role(request),
        }
    }

    #[cfg(feature = "serve")]
    pub(crate) fn is_for_everybody(&self) -> bool {
        matches!(&*self.0, Rule::Everybody(_))
    }

    /// Why an operation is refused to a caller of this role.
    pub(crate) fn refusal(&self, operation: &Operation, role: Role) -> Problem {
        let (name, least) = (operation.name, operation.role.name());
        let code = match &*self.0 {
            Rule::Tokens(_) if role == Role::Anonymous => "token",
            _ => "forbidden",
        };
        let role = role.name();
        Problem::new(
            code,
            format!("{name} is for the role {least}, and the caller's is {role}"),
        )
    }

    /// The cookies that an answer sets for a caller: one in place of its token, or the end of all.
    pub(crate) fn set_cookie(&self, request: &Parts, is_end: bool) -> Vec<HeaderValue> {
        match &*self.0 {
            Rule::Tokens(tokens) => tokens.set_cookie(request, is_end),
            Rule::Everybody(_) | Rule::By(_) => Vec::new(),
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}
