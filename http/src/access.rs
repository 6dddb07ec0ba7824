//! Who may do what: a role for each request.

use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;

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
pub struct Access(Arc<dyn Fn(&Parts) -> Role + Send + Sync>);

impl Access {
    /// Every caller that reaches the router may look, and change nothing.
    #[must_use]
    pub fn read_only() -> Self {
        Self::by(|_| Role::Reader)
    }

    /// Every caller that reaches the router may do everything.
    #[must_use]
    pub fn operator() -> Self {
        Self::by(|_| Role::Operator)
    }

    /// A function decides, of the request's head: method, path, headers, and what layers before the router have put
    /// into its extensions. It is called once per request, before anything else, and must not block.
    #[must_use]
    pub fn by(role: impl Fn(&Parts) -> Role + Send + Sync + 'static) -> Self {
        Self(Arc::new(role))
    }

    pub(crate) fn role(&self, request: &Parts) -> Role {
        (self.0)(request)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}
