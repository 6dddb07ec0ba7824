//! Who may do what: a role for each request, and optionally a rule for each topic.

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
    /// May read runs and their histories, payloads included.
    Reader,
    /// May also start, signal, update and end runs.
    Operator,
}

impl Role {
    /// The role's name, as in the documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Reader => "reader",
            Self::Operator => "operator",
        }
    }
}

/// Decides the role of each request. A cheap clone. There is no default: each program chooses who may look into it.
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
pub struct Access {
    rule: Arc<Rule>,
    topics: Option<Arc<TopicRule>>,
}

/// Whether a caller may use a topic.
type TopicRule = dyn Fn(&TopicRequest<'_>) -> bool + Send + Sync;

/// How a caller wants to use an exposed topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicUse {
    /// To publish to it.
    Publish,
    /// To read or tail it, and to see it in the list of topics.
    Read,
}

/// A request about a topic: see [`Access::topics`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TopicRequest<'a> {
    /// The head of the request: method, path, headers and extensions.
    pub head: &'a Parts,
    /// The role of the caller.
    pub role: Role,
    /// The name of the topic. There may be no exposed topic of that name: callers send any name.
    pub topic: &'a str,
    /// What is wanted of the topic.
    pub wanted: TopicUse,
}

enum Rule {
    Everybody(Role),
    By(Box<dyn Fn(&Parts) -> Role + Send + Sync>),
    Tokens(Tokens),
}

impl Access {
    /// Every caller that reaches the router may read, and change nothing.
    #[must_use]
    pub fn read_only() -> Self {
        Self::of(Rule::Everybody(Role::Reader))
    }

    /// Every caller that reaches the router may do everything.
    #[must_use]
    pub fn operator() -> Self {
        Self::of(Rule::Everybody(Role::Operator))
    }

    /// Callers that send the reading token may read, callers that send the operating token may do everything, and others are
    /// asked for a token. If no token is given for a role, no caller has the role.
    ///
    /// A token is sent as `authorization: Bearer ..`; the page exchanges it for a cookie once (the operation `session`). The
    /// comparison takes the same time for any input, and neither tokens nor cookies are logged.
    #[must_use]
    pub fn token(reading: impl Into<Option<Token>>, operating: impl Into<Option<Token>>) -> Self {
        let (reading, operating) = (reading.into(), operating.into());
        let tokens = Tokens::new(reading.as_ref(), operating.as_ref());
        Self::of(Rule::Tokens(tokens))
    }

    /// A function decides from the request's head: method, path, headers, and what layers before the router have put into its
    /// extensions. It is called once per request, after only `Host` and `Origin` have been checked, and must not block.
    #[must_use]
    pub fn by(role: impl Fn(&Parts) -> Role + Send + Sync + 'static) -> Self {
        Self::of(Rule::By(Box::new(role)))
    }

    fn of(rule: Rule) -> Self {
        Self {
            rule: Arc::new(rule),
            topics: None,
        }
    }

    /// A function decides for each topic who may publish to it and who may read it, in place of the roles: for the operations
    /// `publish`, `records` and `tail` only the function counts, and the list of `topics` shows a caller only what that
    /// caller may read. It is called for each such request, and once for each exposed topic where topics are listed or
    /// traced. It must not block.
    ///
    /// Other operations still go by the role. So a reader sees in the histories of runs what these publish and receive, and
    /// the names of durable topics with the lag of their subscriptions; purging and deleting a topic, and sending its
    /// undelivered records back, is for operators. A topic for undelivered records has the keys, the payloads and the errors
    /// of records of other topics, so a caller that may read it reads those too. The page shows its form for publishing by
    /// the role; a caller that may not publish is told so by the answer.
    ///
    /// ```
    /// use millrun_http::{Access, Role, TopicUse};
    ///
    /// // Each team publishes to topics of its own, and reads those of all.
    /// let access = Access::read_only().topics(|request| match request.wanted {
    ///     TopicUse::Publish => {
    ///         let team = request.head.headers.get("x-team").and_then(|team| team.to_str().ok());
    ///         team.is_some_and(|team| request.topic.split('.').next() == Some(team))
    ///     }
    ///     _ => request.role >= Role::Reader,
    /// });
    /// ```
    #[must_use]
    pub fn topics(mut self, may: impl Fn(&TopicRequest<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.topics = Some(Arc::new(may));
        self
    }

    /// Whether a caller may use a topic in this way; without a rule, `is_enough` for its role decides.
    pub(crate) fn may_use(&self, request: &TopicRequest<'_>, is_role_enough: bool) -> bool {
        match &self.topics {
            Some(may) => may(request),
            None => is_role_enough,
        }
    }

    /// Whether there is a rule for topics.
    pub(crate) fn has_topic_rule(&self) -> bool {
        self.topics.is_some()
    }

    /// Why a use of a topic is refused to a caller of this role, whether or not the topic exists.
    pub(crate) fn topic_refusal(&self, operation: &Operation, role: Role, topic: &str) -> Problem {
        let (name, code) = (operation.name, self.refusal_code(role));
        Problem::new(
            code,
            format!("{name} of the topic {topic:?} is not for this caller"),
        )
    }

    fn refusal_code(&self, role: Role) -> &'static str {
        match &*self.rule {
            Rule::Tokens(_) if role == Role::Anonymous => "token",
            _ => "forbidden",
        }
    }

    pub(crate) fn role(&self, request: &Parts) -> Role {
        match &*self.rule {
            Rule::Everybody(role) => *role,
            Rule::By(role) => role(request),
            Rule::Tokens(tokens) => tokens.role(request),
        }
    }

    #[cfg(feature = "serve")]
    pub(crate) fn is_for_everybody(&self) -> bool {
        matches!(&*self.rule, Rule::Everybody(_))
    }

    /// Why an operation is refused to a caller of this role.
    pub(crate) fn refusal(&self, operation: &Operation, role: Role) -> Problem {
        let (name, least) = (operation.name, operation.role.name());
        let code = self.refusal_code(role);
        let role = role.name();
        Problem::new(
            code,
            format!("{name} is for the role {least}, and the caller's is {role}"),
        )
    }

    /// The cookies that an answer sets for a caller: one in place of its token, or empty ones that end them.
    pub(crate) fn set_cookie(&self, request: &Parts, is_end: bool) -> Vec<HeaderValue> {
        match &*self.rule {
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
