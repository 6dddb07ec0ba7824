//! The table of operations, from which the router is built and with which the documents are compared.

use axum::http::Method;

use crate::Role;
use crate::body::BodyForm;

/// One thing that a client can ask for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// Its name, unique in the table.
    pub name: &'static str,
    /// The method. A GET changes nothing, and answers HEAD as well; a POST has a body of JSON, or of lines of it.
    pub method: Method,
    /// The path below the router's own, with `{..}` where a value stands.
    pub path: &'static str,
    /// The least role that may ask for it.
    pub role: Role,
    /// What it is for.
    pub about: &'static str,
    pub(crate) action: Action,
}

impl Operation {
    /// What its body is made of, if it has one.
    pub(crate) fn body(&self) -> Option<BodyForm> {
        match self.action {
            Action::Starts => Some(BodyForm::LINES),
            _ => (self.method == Method::POST).then_some(BodyForm::JSON),
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Live,
    Ready,
    Session,
    OpenApi,
    Catalogue,
    Instances,
    Finished,
    Stats,
    Parts,
    Topology,
    Metrics,
    DescribeInstance,
    DescribeRun,
    Why,
    History,
    Events,
    Result,
    ResultOfRun,
    Query,
    Topics,
    Tail,
    Publish,
    Start,
    StartByKey,
    Starts,
    Signal,
    Update,
    Cancel,
    Terminate,
    Pause,
    Resume,
}

/// All operations, in the order of the documents.
pub static OPERATIONS: &[Operation] = &[
    Operation {
        name: "live",
        method: Method::GET,
        path: "v1/live",
        role: Role::Anonymous,
        about: "whether the program answers",
        action: Action::Live,
    },
    Operation {
        name: "ready",
        method: Method::GET,
        path: "v1/ready",
        role: Role::Anonymous,
        about: "whether the runtime takes requests; 503 once it has stopped",
        action: Action::Ready,
    },
    Operation {
        name: "session",
        method: Method::POST,
        path: "v1/session",
        role: Role::Reader,
        about: "tells the caller's role, and trades a token for a cookie; with `end` it ends the cookie",
        action: Action::Session,
    },
    Operation {
        name: "openapi",
        method: Method::GET,
        path: "v1/openapi.json",
        role: Role::Reader,
        about: "this table as an OpenAPI document",
        action: Action::OpenApi,
    },
    Operation {
        name: "catalogue",
        method: Method::GET,
        path: "v1/catalogue",
        role: Role::Reader,
        about: "what is registered in the program: workflows with their queries, updates and declared signals, activities, task queues, topics",
        action: Action::Catalogue,
    },
    Operation {
        name: "instances",
        method: Method::GET,
        path: "v1/instances",
        role: Role::Reader,
        about: "live instances by id, behind `after`, at most `limit` (100, up to 1,000) of them",
        action: Action::Instances,
    },
    Operation {
        name: "finished",
        method: Method::GET,
        path: "v1/finished",
        role: Role::Reader,
        about: "finished runs that are retained, the earliest ended first, behind the run `after`, as many",
        action: Action::Finished,
    },
    Operation {
        name: "stats",
        method: Method::GET,
        path: "v1/stats",
        role: Role::Reader,
        about: "counts since the runtime was started, and sizes now",
        action: Action::Stats,
    },
    Operation {
        name: "parts",
        method: Method::GET,
        path: "v1/parts",
        role: Role::Reader,
        about: "the parts of the runtime, and how often each was restarted",
        action: Action::Parts,
    },
    Operation {
        name: "topology",
        method: Method::GET,
        path: "v1/topology",
        role: Role::Reader,
        about: "the topics and subscriptions of the broker, and how much has flowed",
        action: Action::Topology,
    },
    Operation {
        name: "metrics",
        method: Method::GET,
        path: "metrics",
        role: Role::Reader,
        about: "what is counted and measured, as text for Prometheus",
        action: Action::Metrics,
    },
    Operation {
        name: "describe_instance",
        method: Method::GET,
        path: "v1/instances/{id}",
        role: Role::Reader,
        about: "what the latest run of an instance does and waits for; no run is woken",
        action: Action::DescribeInstance,
    },
    Operation {
        name: "describe_run",
        method: Method::GET,
        path: "v1/runs/{run}",
        role: Role::Reader,
        about: "the same, of one run",
        action: Action::DescribeRun,
    },
    Operation {
        name: "why",
        method: Method::GET,
        path: "v1/instances/{id}/why",
        role: Role::Reader,
        about: "what an instance waits for, and its children, down to what holds them up; no run is woken",
        action: Action::Why,
    },
    Operation {
        name: "history",
        method: Method::GET,
        path: "v1/runs/{run}/history",
        role: Role::Reader,
        about: "the events behind `after` (0), at most `limit` (100, up to 1,000) of them",
        action: Action::History,
    },
    Operation {
        name: "events",
        method: Method::GET,
        path: "v1/runs/{run}/events",
        role: Role::Reader,
        about: "the same events as a stream, behind `after` (0), up to the run's last, or `limit` of them",
        action: Action::Events,
    },
    Operation {
        name: "result",
        method: Method::GET,
        path: "v1/instances/{id}/result",
        role: Role::Reader,
        about: "how an instance has ended, or that it has not; it is waited for `wait_ms` (0, up to 60,000)",
        action: Action::Result,
    },
    Operation {
        name: "result_of_run",
        method: Method::GET,
        path: "v1/runs/{run}/result",
        role: Role::Reader,
        about: "the same, of one run, or of the one in which it has gone on",
        action: Action::ResultOfRun,
    },
    Operation {
        name: "topics",
        method: Method::GET,
        path: "v1/topics",
        role: Role::Reader,
        about: "the topics that are exposed",
        action: Action::Topics,
    },
    Operation {
        name: "tail",
        method: Method::GET,
        path: "v1/topics/{topic}/tail",
        role: Role::Reader,
        about: "what is published to an exposed topic as a stream, from now on or behind `after`, or `limit` of it",
        action: Action::Tail,
    },
    Operation {
        name: "query",
        method: Method::POST,
        path: "v1/instances/{id}/query",
        role: Role::Reader,
        about: "asks the state of an instance, without a trace; its code is woken",
        action: Action::Query,
    },
    Operation {
        name: "start",
        method: Method::POST,
        path: "v1/instances/{id}/start",
        role: Role::Operator,
        about: "starts an instance of this id, or tells the run that is there",
        action: Action::Start,
    },
    Operation {
        name: "start_by_key",
        method: Method::POST,
        path: "v1/start",
        role: Role::Operator,
        about: "the same, of the `id` in the body, or else of the one that the header `Idempotency-Key` gives",
        action: Action::StartByKey,
    },
    Operation {
        name: "starts",
        method: Method::POST,
        path: "v1/starts",
        role: Role::Operator,
        about: "starts an instance per line, up to 1,000, and answers each with a line",
        action: Action::Starts,
    },
    Operation {
        name: "publish",
        method: Method::POST,
        path: "v1/topics/{topic}/publish",
        role: Role::Operator,
        about: "publishes to an exposed topic, and waits for room `wait_ms` (5,000, up to 60,000)",
        action: Action::Publish,
    },
    Operation {
        name: "signal",
        method: Method::POST,
        path: "v1/instances/{id}/signal",
        role: Role::Operator,
        about: "sends a signal, once per `request`, or else per `Idempotency-Key`, if there is one",
        action: Action::Signal,
    },
    Operation {
        name: "update",
        method: Method::POST,
        path: "v1/instances/{id}/update",
        role: Role::Operator,
        about: "asks for an update, once per `request`, or else per `Idempotency-Key`",
        action: Action::Update,
    },
    Operation {
        name: "cancel",
        method: Method::POST,
        path: "v1/instances/{id}/cancel",
        role: Role::Operator,
        about: "asks an instance to end, with time to clean up",
        action: Action::Cancel,
    },
    Operation {
        name: "terminate",
        method: Method::POST,
        path: "v1/instances/{id}/terminate",
        role: Role::Operator,
        about: "ends an instance without asking its code",
        action: Action::Terminate,
    },
    Operation {
        name: "pause",
        method: Method::POST,
        path: "v1/instances/{id}/pause",
        role: Role::Operator,
        about: "stops the code of an instance; what it is sent is recorded",
        action: Action::Pause,
    },
    Operation {
        name: "resume",
        method: Method::POST,
        path: "v1/instances/{id}/resume",
        role: Role::Operator,
        about: "takes a paused or parked instance up again",
        action: Action::Resume,
    },
];
