//! How webhooks are signed: with a secret that sender and receiver share, by HMAC with SHA-256 (RFC 2104).

use std::fmt;
use std::time::Duration;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use millrun::Timestamp;
use millrun::host::Host;
use serde::Deserialize;
use sha2::Sha256;

use crate::problem::Problem;

/// How far a webhook's time may differ from the host's.
const TOLERANCE: Duration = Duration::from_secs(300);
/// The largest id in bytes: the same as for an instance.
const ID_BYTES_MAX: usize = 255;

/// How webhooks are signed, and where their id comes from. Several secrets may be given, so that one can be replaced without
/// a gap: a webhook has to match one of them. Signatures are compared in constant time. In a scheme with a time, a webhook's
/// time may differ from the host's by at most five minutes.
#[derive(Clone)]
pub struct Scheme {
    kind: Kind,
    secrets: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Standard,
    GitHub,
    Stripe,
}

/// Why a secret is not valid for a scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// No secret is given.
    #[error("a scheme needs a secret")]
    None,
    /// A secret is empty: everybody knows it.
    #[error("a secret is empty")]
    Empty,
    /// A secret is not base64, which [`Scheme::standard`] requires.
    #[error("a secret is no base64 behind whsec_")]
    Base64,
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme")
            .field("kind", &self.kind)
            .field("secrets_len", &self.secrets.len())
            .finish()
    }
}

impl Scheme {
    /// The scheme of [Standard Webhooks](https://www.standardwebhooks.com), with secrets like `whsec_MfKQ9r8GKYqrTwjU`. A
    /// webhook's id is the header `webhook-id`, which is signed, as is its time. An id with a dot is refused, as the
    /// specification requires: dots separate id, time and body in the signed text, so that the same signature would match
    /// another id with another body.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn standard<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, SecretError> {
        Self::new(Kind::Standard, secrets, |secret| {
            let text = secret.strip_prefix("whsec_").unwrap_or(secret);
            STANDARD.decode(text).map_err(|_| SecretError::Base64)
        })
    }

    /// The scheme of GitHub, in the header `x-hub-signature-256`. It signs only the body, neither a time nor the id of a
    /// delivery. So that nobody who has seen a webhook can send it again as another one, its id is `github-` and the
    /// beginning of its signature: the same for the same body.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn github<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, SecretError> {
        Self::new(Kind::GitHub, secrets, |secret| Ok(secret.into()))
    }

    /// The scheme of Stripe, in the header `stripe-signature`. A webhook's id is the field `id` of its body, which is signed,
    /// as is its time.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn stripe<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, SecretError> {
        Self::new(Kind::Stripe, secrets, |secret| Ok(secret.into()))
    }

    fn new<S: AsRef<str>>(
        kind: Kind,
        secrets: impl IntoIterator<Item = S>,
        decode: impl Fn(&str) -> Result<Vec<u8>, SecretError>,
    ) -> Result<Self, SecretError> {
        let secrets = secrets.into_iter().map(|secret| decode(secret.as_ref()));
        let secrets = secrets.collect::<Result<Vec<_>, _>>()?;
        if secrets.is_empty() {
            return Err(SecretError::None);
        }
        if secrets.iter().any(Vec::is_empty) {
            return Err(SecretError::Empty);
        }
        Ok(Self { kind, secrets })
    }

    /// The id of a webhook, if it is signed by this scheme and its time is close to the present.
    pub(super) fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<String, Problem> {
        match self.kind {
            Kind::Standard => {
                let (id, time) = (one(headers, "webhook-id")?, one(headers, "webhook-timestamp")?);
                if id.contains('.') {
                    return Err(unsigned(
                        "its id has a dot, so that what is signed could be read in two ways",
                    ));
                }
                let signatures = one(headers, "webhook-signature")?.split(' ');
                let signatures =
                    signatures.filter_map(|text| STANDARD.decode(text.strip_prefix("v1,")?).ok());
                self.check(signatures, &[id.as_bytes(), b".", time.as_bytes(), b".", body])?;
                is_fresh(time, now)?;
                as_id(id)
            }
            Kind::GitHub => {
                let text = one(headers, "x-hub-signature-256")?;
                let signature = text.strip_prefix("sha256=").and_then(from_hex);
                self.check(signature, &[body])?;
                // In lower case, so that the same signature always gives the same id.
                as_id(&format!("github-{}", text[7..39].to_ascii_lowercase()))
            }
            Kind::Stripe => {
                let parts = one(headers, "stripe-signature")?.split(',');
                let parts: Vec<_> = parts.filter_map(|part| part.trim().split_once('=')).collect();
                let mut times = parts.iter().filter(|(name, _)| *name == "t");
                let (Some((_, time)), None) = (times.next(), times.next()) else {
                    return Err(unsigned("it has not one time"));
                };
                let signatures = parts.iter().filter(|(name, _)| *name == "v1");
                let signatures = signatures.filter_map(|(_, text)| from_hex(text));
                self.check(signatures, &[time.as_bytes(), b".", body])?;
                is_fresh(time, now)?;
                let Identified { id } = serde_json::from_slice(body)
                    .map_err(|error| Problem::new("webhook", format!("its body has no id: {error}")))?;
                as_id(&id)
            }
        }
    }

    /// Whether one of the signatures is that of these bytes with one of the secrets. The bytes are hashed once for each
    /// secret, not for each signature: a header has room for thousands of signatures, and a stranger may send them.
    fn check(&self, signatures: impl IntoIterator<Item = Vec<u8>>, signed: &[&[u8]]) -> Result<(), Problem> {
        let macs = self.secrets.iter().map(|secret| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key may have any length");
            signed.iter().for_each(|part| mac.update(part));
            mac
        });
        let macs: Vec<_> = macs.collect();
        let mut is_signed = false;
        for signature in signatures {
            for mac in &macs {
                is_signed |= mac.clone().verify_slice(&signature).is_ok();
            }
        }
        match is_signed {
            true => Ok(()),
            false => Err(unsigned("no signature of it fits a secret")),
        }
    }
}

/// The field of a body that names it.
#[derive(Deserialize)]
struct Identified {
    id: String,
}

/// The id of an unsigned webhook: the one that its sender sets, or else a new one. An invalid id is refused: with a new id
/// each time, a repetition would be performed again.
pub(super) fn unsigned_id(headers: &HeaderMap, host: &dyn Host) -> Result<String, Problem> {
    let names = ["idempotency-key", "webhook-id"];
    let Some(name) = names.into_iter().find(|name| headers.contains_key(*name)) else {
        return Ok(format!("webhook-{:016x}{:016x}", host.random(), host.random()));
    };
    let wrong = |_| Problem::new("webhook", format!("it has not one header {name} of text"));
    as_id(one(headers, name).map_err(wrong)?)
}

/// The value of a header that must occur once.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Problem> {
    let mut all = headers.get_all(name).iter();
    let value = all.next().and_then(|value| value.to_str().ok());
    value
        .filter(|_| all.next().is_none())
        .ok_or_else(|| unsigned(&format!("it has not one header {name}")))
}

fn as_id(id: &str) -> Result<String, Problem> {
    match (1..=ID_BYTES_MAX).contains(&id.len()) {
        true => Ok(id.to_owned()),
        false => Err(Problem::new("webhook", "its id has not 1 to 255 bytes")),
    }
}

fn unsigned(what: &str) -> Problem {
    Problem::new("signature", what)
}

/// Whether this many seconds since 1970 are close to the present.
fn is_fresh(seconds: &str, now: Timestamp) -> Result<(), Problem> {
    let digits = seconds.bytes().all(|byte| byte.is_ascii_digit());
    let micros = seconds.parse::<u64>().ok().filter(|_| digits);
    let micros = micros.and_then(|seconds| seconds.checked_mul(1_000_000));
    let time = Timestamp::from_micros(micros.ok_or_else(|| unsigned("its time is no number"))?);
    let apart = now.saturating_since(time).max(time.saturating_since(now));
    match apart <= TOLERANCE {
        true => Ok(()),
        false => Err(Problem::new(
            "stale",
            format!("it is {} s from now", apart.as_secs()),
        )),
    }
}

/// The bytes of 64 hexadecimal digits.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    let bytes = digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]));
    bytes.collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// The example that the libraries of Standard Webhooks are tested with.
    #[test]
    fn the_example_of_standard_webhooks_is_signed_and_its_id_is_told() {
        let scheme = Scheme::standard(["whsec_AAAA", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap();
        let headers = headers(&[
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            (
                "webhook-signature",
                "v1,bm9ldHUK v2,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            ),
        ]);
        let body = br#"{"test": 2432232314}"#;
        for seconds in [1_614_265_030, 1_614_265_330, 1_614_265_630] {
            let id = scheme.verify(&headers, body, at(seconds)).unwrap();
            assert_eq!(id, "msg_p5jXN8AQM9LWM0D4loKWxJek");
        }
        for seconds in [0, 1_614_265_029, 1_614_265_631] {
            let problem = scheme.verify(&headers, body, at(seconds)).unwrap_err();
            assert_eq!(problem.code(), "stale");
        }
        let other = scheme.verify(&headers, br#"{"test":2432232314}"#, at(1_614_265_330));
        assert_eq!(other.unwrap_err().code(), "signature", "each byte counts");
    }

    /// Without this check, the signed webhook `a`, whose body begins with a number and a dot, could be turned into the
    /// webhook `a.7` with the rest as its body, and be performed again under that id.
    #[test]
    fn a_signature_fits_one_way_of_reading_what_was_signed() {
        let scheme = Scheme::standard(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&scheme.secrets[0]).unwrap();
        mac.update(b"a.7.9.{}");
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        let verified = |id, time, body: &[u8]| {
            let headers = headers(&[
                ("webhook-id", id),
                ("webhook-timestamp", time),
                ("webhook-signature", &signature),
            ]);
            scheme.verify(&headers, body, at(8))
        };
        assert_eq!(verified("a", "7", b"9.{}").unwrap(), "a");
        for (id, time, body) in [("a.7", "9", &b"{}"[..]), ("a", "7.9", b"{}"), (".", "7", b"9.{}")] {
            let refused = verified(id, time, body).unwrap_err();
            assert_eq!(refused.code(), "signature", "{id} {time}");
        }
    }

    /// The example of GitHub's documentation.
    #[test]
    fn the_example_of_github_is_signed_and_sent_again_it_is_the_same() {
        let scheme = Scheme::github(["It's a Secret to Everybody"]).unwrap();
        let sum = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        for (sum, delivery) in [(sum.to_owned(), "a"), (sum.to_ascii_uppercase(), "b")] {
            let signature = format!("sha256={sum}");
            let headers = headers(&[
                ("x-hub-signature-256", &signature),
                ("x-github-delivery", delivery),
            ]);
            let id = scheme.verify(&headers, b"Hello, World!", at(7)).unwrap();
            assert_eq!(id, "github-757107ea0eb2509fc211221cce984b8a");
            let other = scheme.verify(&headers, b"Hello, World?", at(7)).unwrap_err();
            assert_eq!(other.code(), "signature");
        }
        for wrong in [
            "",
            "sha256=",
            "sha256=75",
            "sha1=757107ea",
            "sha256=ü",
            "757107ea",
        ] {
            let headers = headers(&[("x-hub-signature-256", wrong)]);
            let refused = scheme.verify(&headers, b"Hello, World!", at(7)).unwrap_err();
            assert_eq!(refused.code(), "signature", "{wrong}");
        }
    }

    #[test]
    fn a_webhook_of_stripe_has_the_id_of_its_body_and_one_time() {
        let scheme = Scheme::stripe(["whsec_test"]).unwrap();
        let body = br#"{"id":"evt_1","object":"event"}"#;
        // python3 -c 'import hmac; print(hmac.new(b"whsec_test", b"1700000000." + body, "sha256").hexdigest())'
        let sum = "4c15fb2a43f93ef61eaa3e0893866d57cad9cad4223242cfb96f362480cb4021";
        let signed = format!("t=1700000000,v1={},v1={sum},v0=00", "0".repeat(64));
        let verified = |signature: &str, body: &[u8]| {
            scheme.verify(
                &headers(&[("stripe-signature", signature)]),
                body,
                at(1_700_000_100),
            )
        };
        assert_eq!(verified(&signed, body).unwrap(), "evt_1");
        for wrong in [
            format!("t=1700000001,v1={sum}"),
            format!("v1={sum}"),
            format!("t=1700000000,t=1700000000,v1={sum}"),
            format!("t=1700000000,v0={sum}"),
            format!("t=+1700000000,v1={sum}"),
            "t=1700000000".to_owned(),
        ] {
            assert_eq!(verified(&wrong, body).unwrap_err().code(), "signature", "{wrong}");
        }
        assert_eq!(verified(&signed, b"{}").unwrap_err().code(), "signature");
    }

    /// Regression: a stranger filled the header with as many signatures as fit, and the body was hashed again for each of
    /// them: one request of 2 MiB took a minute of a core. With that, this test would hash 20 GB.
    #[test]
    fn a_header_full_of_signatures_costs_one_hash_of_the_body() {
        let scheme = Scheme::stripe(["whsec_old", "whsec_test"]).unwrap();
        let mut body = br#"{"id":"evt_1"}"#.to_vec();
        body.resize(2 << 20, b' ');
        let wrong = format!(",v1={}", "0".repeat(64)).repeat(5_000);
        let refused = scheme.verify(
            &headers(&[("stripe-signature", &format!("t=1700000000{wrong}"))]),
            &body,
            at(1_700_000_000),
        );
        assert_eq!(refused.unwrap_err().code(), "signature");
        let mut mac = Hmac::<Sha256>::new_from_slice(b"whsec_test").unwrap();
        mac.update(b"1700000000.");
        mac.update(&body);
        let sum = crate::token::hexadecimal(&mac.finalize().into_bytes());
        let signed = format!("t=1700000000{wrong},v1={sum}");
        let verified = scheme.verify(
            &headers(&[("stripe-signature", &signed)]),
            &body,
            at(1_700_000_000),
        );
        assert_eq!(verified.unwrap(), "evt_1", "the last of them fits");
    }

    #[test]
    fn secrets_are_there_are_not_empty_and_are_not_shown() {
        assert_eq!(Scheme::github::<&str>([]).unwrap_err(), SecretError::None);
        assert_eq!(Scheme::stripe([""]).unwrap_err(), SecretError::Empty);
        assert_eq!(Scheme::standard(["whsec_"]).unwrap_err(), SecretError::Empty);
        assert_eq!(Scheme::standard(["whsec_%"]).unwrap_err(), SecretError::Base64);
        let shown = format!("{:?}", Scheme::github(["hidden"]).unwrap());
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
