//! A tree of tokens that finds filters by topic and topics by filter.
//!
//! ```text
//!   orders ─┬─ eu ── placed   values of "orders.eu.placed"
//!           ├─ * ─── placed   values of "orders.*.placed"
//!           └─ >              values of "orders.>"
//! ```
//!
//! A lookup visits what can match and nothing else, so ten thousand filters cost a topic no more
//! than those that select it.

use std::collections::BTreeMap;

/// Values under filters or names. An empty node is removed with its last value.
pub(crate) struct Trie<V> {
    root: TrieNode<V>,
}

struct TrieNode<V> {
    values: Vec<V>,
    children: BTreeMap<Box<str>, TrieNode<V>>,
}

impl<V: PartialEq + Copy> Trie<V> {
    pub(crate) fn new() -> Self {
        Self {
            root: TrieNode::new(),
        }
    }

    pub(crate) fn insert<'a>(&mut self, tokens: impl Iterator<Item = &'a str>, value: V) {
        let mut node = &mut self.root;
        for token in tokens {
            node = node
                .children
                .entry(Box::from(token))
                .or_insert_with(TrieNode::new);
        }
        node.values.push(value);
    }

    pub(crate) fn remove<'a>(&mut self, tokens: impl Iterator<Item = &'a str>, value: V) {
        self.root.remove(tokens, value);
    }

    /// The values of all filters that match these tokens of a name.
    pub(crate) fn matching_filters<'a>(&self, tokens: impl Iterator<Item = &'a str>) -> Vec<V> {
        let tokens: Vec<&str> = tokens.collect();
        let mut found = Vec::new();
        self.root.filters(&tokens, is_hidden(&tokens), &mut found);
        found
    }

    /// The values of all names that these tokens of a filter match.
    pub(crate) fn matching_names<'a>(&self, tokens: impl Iterator<Item = &'a str>) -> Vec<V> {
        let tokens: Vec<&str> = tokens.collect();
        let mut found = Vec::new();
        match tokens.first() {
            // A wildcard in the first place does not select names that are hidden from it.
            Some(&("*" | ">")) => {
                let seen = self
                    .root
                    .children
                    .iter()
                    .filter(|(token, _)| !is_hidden(&[token]));
                seen.for_each(|(_, child)| child.names_below(&tokens, &mut found));
            }
            _ => self.root.names(&tokens, &mut found),
        }
        found
    }
}

/// Whether only a filter with the same first token selects this name.
fn is_hidden(tokens: &[&str]) -> bool {
    tokens.first().is_some_and(|first| first.starts_with('$'))
}

impl<V: PartialEq + Copy> TrieNode<V> {
    fn new() -> Self {
        Self {
            values: Vec::new(),
            children: BTreeMap::new(),
        }
    }

    /// True if the node holds nothing any more.
    fn remove<'a>(&mut self, mut tokens: impl Iterator<Item = &'a str>, value: V) -> bool {
        match tokens.next() {
            None => self.values.retain(|held| *held != value),
            Some(token) => {
                // The depth is bounded by the most tokens of a name; `dyn` ends the type's growth.
                let rest: &mut dyn Iterator<Item = &'a str> = &mut tokens;
                if self
                    .children
                    .get_mut(token)
                    .is_some_and(|child| child.remove(rest, value))
                {
                    self.children.remove(token);
                }
            }
        }
        self.values.is_empty() && self.children.is_empty()
    }

    fn filters(&self, tokens: &[&str], literal_only: bool, found: &mut Vec<V>) {
        let Some((first, rest)) = tokens.split_first() else {
            found.extend_from_slice(&self.values);
            return;
        };
        if let Some(child) = self.children.get(*first) {
            child.filters(rest, false, found);
        }
        if literal_only {
            return;
        }
        if let Some(child) = self.children.get("*") {
            child.filters(rest, false, found);
        }
        if let Some(child) = self.children.get(">") {
            found.extend_from_slice(&child.values);
        }
    }

    fn names(&self, tokens: &[&str], found: &mut Vec<V>) {
        let Some((first, rest)) = tokens.split_first() else {
            found.extend_from_slice(&self.values);
            return;
        };
        match *first {
            ">" | "*" => self
                .children
                .values()
                .for_each(|child| child.names_below(tokens, found)),
            literal => {
                if let Some(child) = self.children.get(literal) {
                    child.names(rest, found);
                }
            }
        }
    }

    /// The names in this child of a node where `tokens` begins with a wildcard.
    fn names_below(&self, tokens: &[&str], found: &mut Vec<V>) {
        if tokens[0] == ">" {
            self.all(found);
        } else {
            self.names(&tokens[1..], found);
        }
    }

    fn all(&self, found: &mut Vec<V>) {
        found.extend_from_slice(&self.values);
        self.children.values().for_each(|child| child.all(found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trie(entries: &[&str]) -> Trie<usize> {
        let mut trie = Trie::new();
        for (value, entry) in entries.iter().enumerate() {
            trie.insert(entry.split('.'), value);
        }
        trie
    }

    fn sorted(mut values: Vec<usize>) -> Vec<usize> {
        values.sort_unstable();
        values
    }

    #[test]
    fn filters_are_found_by_name() {
        let trie = trie(&["a.b", "a.*", "a.>", ">", "*.b", "b.>", "a.b.c", "a"]);
        assert_eq!(sorted(trie.matching_filters("a.b".split('.'))), [0, 1, 2, 3, 4]);
        assert_eq!(sorted(trie.matching_filters("a".split('.'))), [3, 7]);
    }

    #[test]
    fn names_are_found_by_filter() {
        let trie = trie(&["a", "a.b", "a.c", "a.b.c", "b.b"]);
        assert_eq!(sorted(trie.matching_names("a.>".split('.'))), [1, 2, 3]);
        assert_eq!(sorted(trie.matching_names("*.b".split('.'))), [1, 4]);
        assert_eq!(sorted(trie.matching_names(">".split('.'))), [0, 1, 2, 3, 4]);
        assert_eq!(sorted(trie.matching_names("a.b".split('.'))), [1]);
    }

    #[test]
    fn what_is_removed_leaves_nothing_behind() {
        let mut trie = trie(&["a.b", "a.b", "a.*"]);
        for (value, entry) in ["a.b", "a.b", "a.*"].iter().enumerate() {
            trie.remove(entry.split('.'), value);
        }
        trie.remove("never.there".split('.'), 9);
        assert!(trie.root.children.is_empty());
    }
}
