//! Requests over a connection of their own.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use millrun_http::{OPERATIONS, Operation, Token};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::closed::ClosedFile;
use super::error::{ClientError, Problem};

/// The most that an answer may have.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long an answer may take, beyond what it is asked to wait for.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);

/// Where a program is asked, or the file of one that does not run.
#[derive(Debug)]
pub(crate) enum Place {
    Address { authority: String, prefix: String },
    Socket(PathBuf),
    Closed(ClosedFile),
}

impl Place {
    fn shown(&self) -> String {
        match self {
            Self::Address { authority, prefix } => format!("http://{authority}{prefix}"),
            Self::Socket(path) => path.display().to_string(),
            Self::Closed(file) => file.path().display().to_string(),
        }
    }
}

/// Asks a program.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) place: Place,
    pub(super) token: Option<Token>,
}

/// One request.
#[derive(Debug, Default)]
pub(crate) struct Ask<'a> {
    /// The operation, by its name in the table of the API.
    pub(crate) operation: &'a str,
    /// What stands in its path.
    pub(crate) value: &'a str,
    /// The second value in its path; empty if it has one value only.
    pub(crate) second: &'a str,
    /// Its parameters.
    pub(crate) query: Vec<(&'a str, String)>,
    /// Its body.
    pub(crate) body: Option<String>,
    /// How long it is asked to wait.
    pub(crate) wait: Duration,
}

impl Ask<'_> {
    /// What the advice of an error names: the value in the path; of an entity the instance that it is.
    fn id(&self) -> Option<String> {
        match self.operation {
            _ if self.value.is_empty() => None,
            "command" | "read_entity" | "delete_entity" => Some(format!("{}/{}", self.value, self.second)),
            _ => Some(self.value.to_owned()),
        }
    }
}

impl Client {
    /// Whether a file is asked, in which nothing goes on.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.place, Place::Closed(_))
    }

    /// Asks, and gives the text of the answer.
    ///
    /// # Errors
    /// When nobody answers, or the answer is a problem.
    pub(crate) async fn ask(&self, ask: Ask<'_>) -> Result<String, ClientError> {
        let within = ANSWER_WITHIN + ask.wait;
        let asked = async {
            let id = ask.id();
            let (status, bytes) = collected(self.send(&ask).await?).await?;
            let text = String::from_utf8(bytes.into());
            let text = text.map_err(|_| ClientError::Answer("it is no UTF-8".to_owned()))?;
            if status.is_success() {
                Ok(text)
            } else {
                Err(refused(status, &text, id))
            }
        };
        let late = ClientError::Late(within.as_secs());
        timeout(within, asked).await.unwrap_or(Err(late))
    }

    /// Asks for a stream.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn stream(&self, ask: Ask<'_>) -> Result<Incoming, ClientError> {
        let id = ask.id();
        let answer = timeout(ANSWER_WITHIN, self.send(&ask)).await;
        let answer = answer.map_err(|_| ClientError::Late(ANSWER_WITHIN.as_secs()))??;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let (status, bytes) = collected(answer).await?;
        Err(refused(status, &String::from_utf8_lossy(&bytes), id))
    }

    /// Sends a request. One that only reads is sent once more if the connection ends before its answer: the process was
    /// killed just then, say, and another has taken its place. What changes something may have been done.
    async fn send(&self, ask: &Ask<'_>) -> Result<Response<Incoming>, ClientError> {
        match self.send_once(ask).await {
            Err(ClientError::Cut { is_change: false, .. }) => self.send_once(ask).await,
            answer => answer,
        }
    }

    async fn send_once(&self, ask: &Ask<'_>) -> Result<Response<Incoming>, ClientError> {
        let operation = operation(ask.operation)?;
        let failed = |source| ClientError::Unreachable {
            place: self.place.shown(),
            source,
        };
        match &self.place {
            Place::Address { authority, prefix } => {
                let request = request(operation, ask, prefix, authority, self.token.as_ref())?;
                let address = if has_port(authority) {
                    authority.clone()
                } else {
                    format!("{authority}:80")
                };
                exchange(TcpStream::connect(address).await.map_err(failed)?, request).await
            }
            Place::Socket(path) => {
                let request = request(operation, ask, "", "localhost", self.token.as_ref())?;
                exchange(UnixStream::connect(path).await.map_err(failed)?, request).await
            }
            Place::Closed(file) => {
                let request = request(operation, ask, "", "localhost", None)?;
                file.send(operation, request).await
            }
        }
    }
}

/// Whether an authority names a port; the colons within brackets are those of an address.
fn has_port(authority: &str) -> bool {
    authority
        .rsplit(']')
        .next()
        .is_some_and(|rest| rest.contains(':'))
}

/// The operation of this name.
fn operation(name: &str) -> Result<&'static Operation, ClientError> {
    let mut all = OPERATIONS.iter();
    all.find(|operation| operation.name == name).ok_or_else(|| {
        let names: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        ClientError::Usage(format!(
            "there is no operation {name:?}; there are: {}",
            names.join(", ")
        ))
    })
}

fn request(
    operation: &Operation,
    ask: &Ask<'_>,
    prefix: &str,
    host: &str,
    token: Option<&Token>,
) -> Result<Request<Body>, ClientError> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut target = format!("{prefix}/");
    match operation.path.split_once('{') {
        None => target.push_str(operation.path),
        Some(_) if ask.value.is_empty() => {
            let why = format!("{} is of an instance or run: name it", operation.name);
            return Err(ClientError::Usage(why));
        }
        Some((before, rest)) => {
            let after = rest.split_once('}').map_or("", |(_, after)| after);
            target.push_str(&format!("{before}{}", encoded(ask.value)));
            if after.contains('{') && ask.second.is_empty() {
                let try_this = match operation.name {
                    "output" => "stream RUN NAME",
                    _ => "command, read or delete-entity, with ENTITY KEY",
                };
                let why = format!("{} has two values\ntry: millrun {try_this}", operation.name);
                return Err(ClientError::Usage(why));
            }
            match after.split_once('{') {
                Some((between, rest)) => {
                    let behind = rest.split_once('}').map_or("", |(_, behind)| behind);
                    target.push_str(&format!("{between}{}{behind}", encoded(ask.second)));
                }
                None => target.push_str(after),
            }
        }
    }
    for (number, (name, value)) in ask.query.iter().enumerate() {
        let mark = if number == 0 { '?' } else { '&' };
        target.push_str(&format!("{mark}{name}={}", encoded(value)));
    }
    let mut request = Request::builder()
        .method(&operation.method)
        .uri(target)
        .header(header::HOST, host);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, token.authorization());
    }
    let body = match (&ask.body, &operation.method) {
        (Some(body), _) => Body::from(body.clone()),
        (None, &Method::POST) => Body::from("{}"),
        (None, _) => Body::empty(),
    };
    if operation.method == Method::POST {
        request = request.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    request
        .body(body)
        .map_err(|error| ClientError::Usage(error.to_string()))
}

/// Sends a request, and gives the answer when it has begun.
pub(super) async fn exchange(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Body>,
) -> Result<Response<Incoming>, ClientError> {
    let is_change = request.method() != Method::GET;
    let broken = |error: hyper::Error| match error.is_parse() {
        true => ClientError::Answer(with_source(&error)),
        false => ClientError::Cut {
            why: with_source(&error),
            is_change,
        },
    };
    let (mut sender, connection) = handshake(TokioIo::new(io)).await.map_err(broken)?;
    // It ends with the answer's body, or with this process.
    tokio::spawn(async move {
        // Whatever ends it is told to the one who waits for the answer.
        connection.await.ok();
    });
    sender.send_request(request).await.map_err(broken)
}

async fn collected(answer: Response<Incoming>) -> Result<(StatusCode, Bytes), ClientError> {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => ClientError::TooLarge(ANSWER_BYTES_MAX),
        None => ClientError::Answer(error.to_string()),
    })?;
    Ok((status, body.to_bytes()))
}

/// What an answer says that is none.
fn refused(status: StatusCode, text: &str, id: Option<String>) -> ClientError {
    match serde_json::from_str::<Problem>(text) {
        Ok(mut problem) => {
            problem.id = id;
            ClientError::Problem(Box::new(problem))
        }
        Err(_) => ClientError::Answer(format!("the status is {status}; is this the address of the API?")),
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// An error of the connection, for what reads a stream.
pub(crate) fn broken(error: &hyper::Error) -> ClientError {
    ClientError::Answer(with_source(error))
}

/// An error of the system that says that nobody listens.
pub(crate) fn is_nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}
