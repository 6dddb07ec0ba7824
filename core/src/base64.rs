//! Bytes as text where a format has no bytes of its own: base64 as in RFC 4648, section 4, with padding.
//!
//! ```
//! use millrun_core::base64;
//!
//! assert_eq!(base64::encode(b"mill"), "bWlsbA==");
//! assert_eq!(base64::decode("bWlsbA==").as_deref(), Some(&b"mill"[..]));
//! assert_eq!(base64::decode("bWlsbA"), None);
//! ```

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of these bytes: four characters for each three, the last ones padded with `=`.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    encode_onto(&mut text, bytes);
    text
}

/// Adds the [text](encode) of these bytes to another.
pub fn encode_onto(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                let index = usize::try_from((bits >> (18 - 6 * digit)) & 63).expect("six bits");
                text.push(char::from(DIGITS[index]));
            } else {
                text.push('=');
            }
        }
    }
}

/// The bytes of such a text; `None` if it is none, unpadded ones among them.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in digits.chunks(4) {
        let mut bits = 0_u32;
        for index in 0..4 {
            let digit = match chunk.get(index) {
                Some(b'A'..=b'Z') => chunk[index] - b'A',
                Some(b'a'..=b'z') => chunk[index] - b'a' + 26,
                Some(b'0'..=b'9') => chunk[index] - b'0' + 52,
                Some(b'+') => 62,
                Some(b'/') => 63,
                Some(_) => return None,
                None => 0,
            };
            bits = bits << 6 | u32::from(digit);
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text), Some(bytes.as_bytes().to_vec()));
        }
        for text in ["a", "ab=", "a*bc", "====", "a=bc", "a===", "Zg==Zg==", "Zg=v"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
