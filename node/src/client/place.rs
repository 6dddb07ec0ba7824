//! From the command line and the environment to the place where the program is asked.

use std::env;
use std::path::{Path, PathBuf};

use axum::http::Uri;
use millrun_http::Token;
use tokio::net::UnixStream;

use super::closed::ClosedFile;
use super::error::ClientError;
use super::options::At;
use super::wire::{Client, Place, is_nobody};

/// The store, if nothing says where to ask: that of `millrun serve`.
const STORE: &str = "millrun.redb";

/// Finds the place.
///
/// # Errors
/// When the URL or the token is wrong, or there is no such store.
pub(crate) async fn client(at: &At) -> Result<Client, ClientError> {
    let token = match &at.token_file {
        Some(path) => Some(Token::from_file(path)?),
        None if env::var_os("MILLRUN_TOKEN").is_some() => Some(Token::from_env("MILLRUN_TOKEN")?),
        None => None,
    };
    let place = match (&at.url, &at.socket, &at.store) {
        (Some(url), ..) => address(url)?,
        (_, Some(socket), _) => Place::Socket(socket.clone()),
        (.., Some(store)) => beside(store).await?,
        (None, None, None) => match (env::var("MILLRUN_URL"), path_in("MILLRUN_SOCKET")) {
            (Ok(url), _) => address(&url)?,
            (_, Some(socket)) => Place::Socket(socket),
            _ => beside(&path_in("MILLRUN_STORE").unwrap_or_else(|| STORE.into())).await?,
        },
    };
    Ok(Client { place, token })
}

fn path_in(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from)
}

fn address(url: &str) -> Result<Place, ClientError> {
    let wrong = |why: &str| ClientError::Usage(format!("{url:?} is no URL of a program: {why}"));
    let parsed: Uri = url
        .parse()
        .map_err(|_| wrong("it is like http://127.0.0.1:7070"))?;
    match parsed.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(wrong(
                "https is for a proxy in front of it; ask it by http, or at its socket",
            ));
        }
        _ => return Err(wrong("it begins with http://")),
    }
    let authority = parsed.authority().ok_or_else(|| wrong("it names no host"))?;
    Ok(Place::Address {
        authority: authority.to_string(),
        prefix: parsed.path().trim_end_matches('/').to_owned(),
    })
}

/// The socket beside a store, if a process listens there; else its file.
async fn beside(store: &Path) -> Result<Place, ClientError> {
    let mut socket = store.as_os_str().to_owned();
    socket.push(".sock");
    let socket = PathBuf::from(socket);
    match UnixStream::connect(&socket).await {
        Err(error) if is_nobody(&error) => {
            let store = store.to_owned();
            match store.exists() {
                true => Ok(Place::Closed(ClosedFile::new(store, socket))),
                false => Err(ClientError::NoStore(store)),
            }
        }
        // Another error is told by the request.
        _ => Ok(Place::Socket(socket)),
    }
}
