//! One connection: its requests, one after the other, until either side closes it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::ServeConfig;
use super::request::answer;
use super::routes::Routes;
use super::serving::Ending;
use super::silent::SilentPlace;
use super::timer::ConnectionTimer;
use super::unstalled::Unstalled;

/// The smallest buffer that hyper accepts.
const BUFFER_BYTES_MIN: usize = 8_192;

/// Serves a connection to its end. Errors of the connection concern nobody else.
pub(super) async fn serve<Io: AsyncRead + AsyncWrite + Unpin>(
    io: Io,
    routes: Routes,
    config: Arc<ServeConfig>,
    ending: Ending,
    (place, mut makes_room): (SilentPlace, oneshot::Receiver<()>),
) {
    let has_asked = AtomicBool::new(false);
    let has_asked = &has_asked;
    let place = &place;
    let bounds = (config.request_within, config.upkeep_within);
    let timer = ConnectionTimer::default();
    let (routes, timed, ending) = (&routes, &timer, &ending);
    let service = service_fn(|request: Request<Incoming>| {
        let is_first = !has_asked.swap(true, Ordering::Relaxed);
        let is_closed = is_first && !place.leave();
        let answered = answer(routes, request, bounds, timed, ending);
        async move {
            if is_closed {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
            }
            Ok::<_, io::Error>(answered.await)
        }
    });
    let io = TokioIo::new(Unstalled::new(io, config.unsent_within, timer.clone()));
    let connection = http1::Builder::new()
        .timer(timer.clone())
        .header_read_timeout(config.header_within)
        .max_header_size(config.header_bytes_max)
        .max_buf_size(
            config
                .unsent_bytes_max
                .max(config.header_bytes_max)
                .max(BUFFER_BYTES_MIN),
        )
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let mut stopping = ending.stopping();
    let (mut is_silent, mut is_stopping) = (true, false);
    loop {
        tokio::select! {
            biased;
            _ended = connection.as_mut() => return,
            closed = &mut makes_room, if is_silent => match closed {
                Ok(()) => return,
                Err(_has_asked) => is_silent = false,
            },
            () = &mut stopping, if !is_stopping => {
                // The request under way is answered, and no further one is read.
                connection.as_mut().graceful_shutdown();
                is_stopping = true;
            }
        }
    }
}
