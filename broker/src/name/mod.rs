//! Topic names and the filters that select them.
//!
//! A name is one or more tokens with dots between them: `orders.eu.placed`. In a filter `*`
//! stands for exactly one token and a final `>` for one or more, as in NATS. Names that begin with
//! `$` are for the broker's own topics: a wildcard in the first place does not select them.
//!
//! ```
//! use millrun_broker::{Filter, TopicName};
//!
//! let name = TopicName::new("orders.eu.placed")?;
//! assert!(Filter::new("orders.*.placed")?.matches(&name));
//! assert!(Filter::new("orders.>")?.matches(&name));
//! assert!(!Filter::new("orders.*")?.matches(&name));
//! # Ok::<(), millrun_broker::NameError>(())
//! ```

pub(crate) mod trie;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of one topic. A cheap clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Which topics a subscription is interested in. A cheap clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter(Arc<str>);

/// Why a string is not a topic name or a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It has no characters, or nothing stands before, after or between dots.
    #[error("a token of a topic name must not be empty")]
    EmptyToken,
    /// It is longer than [`TopicName::BYTES_MAX`].
    #[error(
        "a topic name has at most {} bytes, this one has {bytes}",
        TopicName::BYTES_MAX
    )]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It has more tokens than [`TopicName::TOKENS_MAX`].
    #[error(
        "a topic name has at most {} tokens, this one has {tokens}",
        TopicName::TOKENS_MAX
    )]
    TooDeep {
        /// Its number of tokens.
        tokens: usize,
    },
    /// It contains white space or a control character.
    #[error("a topic name must not contain {found:?}")]
    Forbidden {
        /// The first such character.
        found: char,
    },
    /// `*` or `>` in a topic name; or, in a filter, as a part of a token.
    #[error("{found:?} must be a token of its own, and only in a filter")]
    Wildcard {
        /// `*` or `>`.
        found: char,
    },
    /// Something follows `>` in a filter.
    #[error("nothing may follow \">\" in a filter")]
    RestNotLast,
}

impl TopicName {
    /// The longest name or filter, in bytes.
    pub const BYTES_MAX: usize = 255;
    /// The most tokens of a name or filter.
    pub const TOKENS_MAX: usize = 32;

    /// Checks and wraps a name.
    ///
    /// # Errors
    /// When it breaks one of the rules that [`NameError`] lists.
    pub fn new(name: &str) -> Result<Self, NameError> {
        check_shape(name)?;
        name.split('.').try_for_each(check_literal)?;
        Ok(Self(Arc::from(name)))
    }

    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl Filter {
    /// Checks and wraps a filter. Every topic name is also a filter, which matches itself only.
    ///
    /// # Errors
    /// When it breaks one of the rules that [`NameError`] lists.
    pub fn new(filter: &str) -> Result<Self, NameError> {
        check_shape(filter)?;
        let mut rest_seen = false;
        for token in filter.split('.') {
            if rest_seen {
                return Err(NameError::RestNotLast);
            }
            match token {
                "*" => {}
                ">" => rest_seen = true,
                literal => check_literal(literal)?,
            }
        }
        Ok(Self(Arc::from(filter)))
    }

    /// The filter as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the filter selects this topic.
    #[must_use]
    pub fn matches(&self, name: &TopicName) -> bool {
        let mut hidden = name.as_str().starts_with('$');
        let mut tokens = name.tokens();
        for wanted in self.tokens() {
            match (wanted, tokens.next()) {
                ("*" | ">", Some(_)) if hidden => return false,
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (literal, Some(token)) if literal == token => {}
                _ => return false,
            }
            hidden = false;
        }
        tokens.next().is_none()
    }

    /// The one topic this filter selects, if it has no wildcard.
    #[must_use]
    pub fn as_name(&self) -> Option<TopicName> {
        let literal = self.tokens().all(|token| token != "*" && token != ">");
        literal.then(|| TopicName(Arc::clone(&self.0)))
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

fn check_shape(text: &str) -> Result<(), NameError> {
    if text.len() > TopicName::BYTES_MAX {
        return Err(NameError::TooLong { bytes: text.len() });
    }
    let tokens = text.split('.').count();
    if tokens > TopicName::TOKENS_MAX {
        return Err(NameError::TooDeep { tokens });
    }
    Ok(())
}

fn check_literal(token: &str) -> Result<(), NameError> {
    if token.is_empty() {
        return Err(NameError::EmptyToken);
    }
    for found in token.chars() {
        if found == '*' || found == '>' {
            return Err(NameError::Wildcard { found });
        }
        if found.is_whitespace() || found.is_control() {
            return Err(NameError::Forbidden { found });
        }
    }
    Ok(())
}

impl From<&TopicName> for Filter {
    fn from(name: &TopicName) -> Self {
        Self(Arc::clone(&name.0))
    }
}

impl FromStr for TopicName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

impl FromStr for Filter {
    type Err = NameError;

    fn from_str(filter: &str) -> Result<Self, NameError> {
        Self::new(filter)
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(filter: &str, name: &str, expected: bool) {
        let matched = Filter::new(filter)
            .unwrap()
            .matches(&TopicName::new(name).unwrap());
        assert_eq!(matched, expected, "{filter} on {name}");
    }

    #[test]
    fn wildcards_stand_for_one_token_or_the_rest() {
        check("a.b", "a.b", true);
        check("a.b", "a", false);
        check("a.b", "a.b.c", false);
        check("a.*", "a.b", true);
        check("*", "a", true);
        check("*", "a.b", false);
        check("*.b", "a.b", true);
        check(">", "a", true);
        check(">", "a.b.c", true);
        check("a.>", "a", false);
        check("a.>", "a.b.c", true);
        check("a.*.>", "a.b", false);
        check("a.*.>", "a.b.c", true);
        check(">", "$a.b", false);
        check("*.b", "$a.b", false);
        check("$a.>", "$a.b", true);
    }

    #[test]
    fn names_that_break_a_rule_are_refused() {
        for (name, error) in [
            ("", NameError::EmptyToken),
            ("a..b", NameError::EmptyToken),
            ("a.", NameError::EmptyToken),
            ("a b", NameError::Forbidden { found: ' ' }),
            ("a.\u{7}", NameError::Forbidden { found: '\u{7}' }),
            ("a.*", NameError::Wildcard { found: '*' }),
            ("a.>", NameError::Wildcard { found: '>' }),
        ] {
            assert_eq!(TopicName::new(name), Err(error), "{name:?}");
        }
        assert_eq!(
            TopicName::new(&"x".repeat(256)),
            Err(NameError::TooLong { bytes: 256 })
        );
        assert_eq!(
            TopicName::new(&["x"; 33].join(".")),
            Err(NameError::TooDeep { tokens: 33 })
        );
    }

    #[test]
    fn a_filter_takes_wildcards_only_as_whole_tokens() {
        assert_eq!(Filter::new("a.b*"), Err(NameError::Wildcard { found: '*' }));
        assert_eq!(Filter::new(">.a"), Err(NameError::RestNotLast));
        assert_eq!(Filter::new("a.*").unwrap().as_name(), None);
        assert_eq!(Filter::new("a.b").unwrap().as_name(), TopicName::new("a.b").ok());
    }
}
