//! The header `traceparent` of a request: the caller's place in a distributed trace.
//!
//! Left out on purpose: `tracestate`, and the header of a webhook, whose sender may be anybody.

use axum::http::HeaderMap;
use millrun::workflow::TraceContext;

/// The caller's place. An invalid or repeated header is ignored, as the recommendation of the W3C asks: a caller with a
/// broken tracer is served all the same.
pub(crate) fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut all = headers.get_all("traceparent").iter();
    let (first, second) = (all.next()?, all.next());
    second.is_none().then(|| first.to_str().ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_none_is_passed_over() {
        let check = |values: &[&[u8]], expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("traceparent", value.to_vec().try_into().unwrap());
            }
            let found = trace_of(&headers).map(|trace| trace.to_string());
            assert_eq!(found.as_deref(), expected, "{values:?}");
        };
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        check(&[], None);
        check(&[text.as_bytes()], Some(text));
        check(&[text.as_bytes(), text.as_bytes()], None);
        check(&[b"00-4bf92f"], None);
        check(&["\u{fc}".as_bytes()], None);
    }
}
