//! Tokens: secrets that give a role.

use std::env::{self, VarError};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest as _, Sha256};

use crate::Role;

/// The smallest and the largest number of characters of a token.
const TOKEN_LEN: (usize, usize) = (16, 512);
/// The prefix of the name of the cookie for a token. The rest of the name differs between tokens: programs on several ports
/// of one host share their cookies.
const COOKIE: &str = "millrun-";

/// A secret that a client sends as `authorization: Bearer ..`: 16 to 512 visible ASCII characters. It is not shown
/// by `Debug`.
///
/// ```
/// use millrun_http::{Access, Token};
///
/// # fn main() -> Result<(), millrun_http::TokenError> {
/// let token = Token::new("8tZ4mJqf0P2vWn7RkXc5")?;
/// assert!(!format!("{token:?}").contains("8tZ4"));
/// let access = Access::token(None, token);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Token(HeaderValue);

/// Why a token is not valid. The messages do not contain its text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It is too short to be a secret, or too long; with its length.
    #[error("a token has 16 to 512 characters, and this one {0}")]
    Length(usize),
    /// It has a character that a header cannot have, or a space.
    #[error("a token has only visible ASCII characters")]
    Character,
    /// The environment has no variable of this name, or one that is no text.
    #[error("the environment has no {name}")]
    Variable {
        /// The name.
        name: String,
        /// What is wrong with it.
        #[source]
        source: VarError,
    },
    /// The file cannot be read.
    #[error("the token's file {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

impl Token {
    /// A token of this text.
    ///
    /// # Errors
    /// When it is too short or too long, or has a character that is not visible ASCII.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        if !(TOKEN_LEN.0..=TOKEN_LEN.1).contains(&text.len()) {
            return Err(TokenError::Length(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Character);
        }
        let value = HeaderValue::try_from(format!("Bearer {text}"));
        let mut value = value.map_err(|_| TokenError::Character)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// The token in an environment variable.
    ///
    /// # Errors
    /// When the variable is missing, or its value is not a valid token.
    pub fn from_env(name: &str) -> Result<Self, TokenError> {
        let text = env::var(name).map_err(|source| TokenError::Variable {
            name: name.to_owned(),
            source,
        })?;
        Self::new(text.trim())
    }

    /// The token in a file, with surrounding white space removed.
    ///
    /// # Errors
    /// When the file cannot be read, or does not hold a valid token.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenError> {
        let path = path.as_ref();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(4_096).read_to_string(&mut text));
        read.map_err(|source| TokenError::File {
            path: path.to_owned(),
            source,
        })?;
        Self::new(text.trim())
    }

    /// The value of the header `authorization` for a client; it is marked as sensitive.
    #[must_use]
    pub fn authorization(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// What is kept of the tokens for the two roles: hashes, from which no token can be computed.
pub(crate) struct Tokens {
    known: Vec<(Role, Known)>,
}

struct Known {
    /// The hash of the header that a client sends.
    sum: [u8; 32],
    cookie_name: String,
    /// The hash of the cookie's value, which is itself a hash of the token: seeing a cookie does not reveal the token.
    cookie_sum: [u8; 32],
    cookie_value: String,
}

impl Tokens {
    pub(crate) fn new(reading: Option<&Token>, operating: Option<&Token>) -> Self {
        // The higher role comes first, in case both have the same token.
        let tokens = [(Role::Operator, operating), (Role::Reader, reading)];
        let known = tokens
            .into_iter()
            .filter_map(|(role, token)| Some((role, Known::of(token?))));
        Self {
            known: known.collect(),
        }
    }

    /// The role of a request, by its token or else its cookie.
    pub(crate) fn role(&self, request: &Parts) -> Role {
        match self.bearer(&request.headers) {
            Some(known) => known.map_or(Role::Anonymous, |(role, _)| *role),
            None => self.cookie(&request.headers).unwrap_or(Role::Anonymous),
        }
    }

    /// The cookie in exchange for a request's token, or an empty one that ends the request's cookie.
    pub(crate) fn set_cookie(&self, request: &Parts, is_end: bool) -> Vec<HeaderValue> {
        let headers = &request.headers;
        // A page that was loaded over TLS has `https` in the origin of its requests.
        let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes);
        let secure = match origin.is_some_and(|origin| origin.starts_with(b"https://")) {
            true => "; Secure",
            false => "",
        };
        // Without a path the cookie applies to this route's folder, under whatever prefix the browser uses.
        let made = |name: &str, value: &str, end: &str| {
            let text = format!("{name}={value}; HttpOnly; SameSite=Strict{secure}{end}");
            HeaderValue::try_from(text).ok().map(|mut value| {
                value.set_sensitive(true);
                value
            })
        };
        if is_end {
            let all = self.known.iter();
            return all
                .filter_map(|(_, known)| made(&known.cookie_name, "", "; Max-Age=0"))
                .collect();
        }
        let traded = self.bearer(headers).flatten();
        let cookie = traded.and_then(|(_, known)| made(&known.cookie_name, &known.cookie_value, ""));
        cookie.into_iter().collect()
    }

    /// The entry for the token in the headers; `None` if there is no token, and `Some(None)` if it is wrong.
    fn bearer(&self, headers: &HeaderMap) -> Option<Option<&(Role, Known)>> {
        let sent = headers.get(header::AUTHORIZATION)?;
        let is_alone = headers.get_all(header::AUTHORIZATION).iter().nth(1).is_none();
        let sum = sum(sent.as_bytes());
        let mut found = None;
        for known in self.known.iter().rev() {
            if is_same(&known.1.sum, &sum) && is_alone {
                found = Some(known);
            }
        }
        Some(found)
    }

    fn cookie(&self, headers: &HeaderMap) -> Option<Role> {
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let cookies = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'));
        let ours = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        let mut role = None;
        for (name, value) in ours.filter(|(name, _)| name.starts_with(COOKIE)) {
            let sum = sum(value.as_bytes());
            for (known_role, known) in &self.known {
                if name == known.cookie_name && is_same(&known.cookie_sum, &sum) {
                    role = role.max(Some(*known_role));
                }
            }
        }
        role
    }
}

impl Known {
    fn of(token: &Token) -> Self {
        let header = token.0.as_bytes();
        let derived = |label: &str| hexadecimal(&sum(&[label.as_bytes(), header].concat()));
        let cookie_value = derived("millrun cookie value\n");
        Self {
            sum: sum(header),
            cookie_name: format!("{COOKIE}{}", &derived("millrun cookie name\n")[..8]),
            cookie_sum: sum(cookie_value.as_bytes()),
            cookie_value,
        }
    }
}

fn sum(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares hashes in constant time. They have the same length for any input, so that the length of a token is not revealed
/// either.
fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a
        .iter()
        .zip(b)
        .fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_the_same_only_if_no_byte_differs() {
        let one = sum(b"one");
        assert!(is_same(&one, &sum(b"one")));
        for place in 0..32 {
            let mut other = one;
            other[place] ^= 0x80;
            assert!(!is_same(&one, &other), "{place}");
        }
    }

    #[test]
    fn a_token_is_shown_nowhere() {
        let text = "0123456789abcdef";
        let token = Token::new(text).unwrap();
        assert!(!format!("{token:?} {:?}", token.authorization()).contains(text));
        let refused = Token::new("0123456789 abcdef").unwrap_err();
        assert!(matches!(refused, TokenError::Character));
        assert!(!format!("{refused:?} {refused}").contains("0123"));
        for (text, len) in [("short", 5), (&*"x".repeat(513), 513)] {
            assert!(matches!(Token::new(text), Err(TokenError::Length(of)) if of == len));
        }
    }
}
