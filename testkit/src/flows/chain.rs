//! Causes and consequences as a tree.
//!
//! The tree is kept as a list in preorder with a depth for each link, so that a chain of a hundred
//! thousand links costs no stack.

use std::collections::BTreeMap;
use std::fmt;

use millrun_broker::EnvelopeId;

use super::flow::Flow;
use super::recorder::{FlowRecorder, parse};

/// How deep the printed tree is indented; deeper links say their depth.
const INDENT_MAX: usize = 24;

/// An envelope with all its consequences, starting from the first cause.
///
/// Printed, each envelope is a line, indented under its cause, with its outcome at each subscription:
///
/// ```text
/// 0000000000000001 orders.eu.placed Order(42)
///   "billing" (subscription-1, orders.>): handled
/// └─ 0000000000000002 payments.taken Payment(42), caused by 0000000000000001
///      "mails" (subscription-2, payments.*): handled
/// ```
#[derive(Clone)]
pub struct Chain {
    links: Vec<Link>,
}

/// One envelope of a [`Chain`].
#[derive(Clone)]
#[non_exhaustive]
pub struct Link {
    /// How many causes it has above it in the chain.
    pub depth: usize,
    /// The envelope.
    pub flow: Flow,
}

impl Chain {
    pub(super) fn around(recorder: &FlowRecorder, id: EnvelopeId) -> Option<Self> {
        let (root, consequences) = {
            let book = recorder.book();
            let mut root = id;
            let mut number = book.entries.get(&id)?.number;
            // Each step leads to an older envelope, so the loop ends.
            while let Some(cause) = book.entries.get(&root).and_then(|entry| entry.causation) {
                match book.entries.get(&cause) {
                    Some(entry) if entry.number < number => (root, number) = (cause, entry.number),
                    _ => break,
                }
            }
            let mut consequences: BTreeMap<EnvelopeId, Vec<EnvelopeId>> = BTreeMap::new();
            for id in book.order.values() {
                let cause = book.entries.get(id).and_then(|entry| entry.causation);
                if let Some(cause) = cause {
                    consequences.entry(cause).or_default().push(*id);
                }
            }
            (root, consequences)
        };
        let mut links = Vec::new();
        let mut left = vec![(0, root)];
        while let Some((depth, id)) = left.pop() {
            let Some(flow) = recorder.flow_of(id) else {
                continue;
            };
            links.push(Link { depth, flow });
            let consequences = consequences.get(&id).into_iter().flatten().rev();
            left.extend(consequences.map(|id| (depth + 1, *id)));
        }
        (!links.is_empty()).then_some(Self { links })
    }

    /// The first cause.
    #[must_use]
    pub fn root(&self) -> &Flow {
        &self.links.first().expect("a chain has a root").flow
    }

    /// All envelopes, each after its cause and before later consequences of that cause.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Every path from the first cause to an envelope without consequences.
    #[must_use]
    pub fn paths(&self) -> Vec<Vec<&Flow>> {
        let mut paths = Vec::new();
        let mut path: Vec<&Flow> = Vec::new();
        for (index, link) in self.links.iter().enumerate() {
            path.truncate(link.depth);
            path.push(&link.flow);
            let is_leaf = self
                .links
                .get(index + 1)
                .is_none_or(|next| next.depth <= link.depth);
            if is_leaf {
                paths.push(path.clone());
            }
        }
        paths
    }

    /// Whether one of the [paths](Chain::paths) goes through topics that these filters select, one
    /// after the other, from the first cause to the end.
    ///
    /// # Panics
    /// When one of `filters` is not a filter.
    #[must_use]
    #[track_caller]
    pub fn has_path(&self, filters: &[&str]) -> bool {
        let filters: Vec<_> = filters.iter().map(|filter| parse(filter)).collect();
        self.paths().iter().any(|path| {
            path.len() == filters.len()
                && path.iter().zip(&filters).all(|(flow, filter)| {
                    let topic = flow.topic.as_ref();
                    topic.is_some_and(|topic| filter.matches(topic))
                })
        })
    }
}

impl Chain {
    /// For each link, whether it is the last consequence of its cause.
    fn is_last(&self) -> Vec<bool> {
        let mut later_siblings: Vec<bool> = Vec::new();
        let mut last: Vec<bool> = Vec::with_capacity(self.links.len());
        for link in self.links.iter().rev() {
            later_siblings.resize(link.depth + 1, false);
            last.push(!later_siblings[link.depth]);
            later_siblings[link.depth] = true;
        }
        last.reverse();
        last
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // For each depth below the root, whether the link printed there last has later siblings.
        let mut open: Vec<bool> = Vec::new();
        for (link, is_last) in self.links.iter().zip(self.is_last()) {
            open.truncate(link.depth.saturating_sub(1));
            let bars = open.iter().take(INDENT_MAX);
            let indent: String = bars.map(|open| if *open { "│  " } else { "   " }).collect();
            let (branch, below) = match (link.depth, is_last) {
                (0, _) => ("", ""),
                (_, false) => ("├─ ", "│  "),
                (_, true) => ("└─ ", "   "),
            };
            let depth = if link.depth > INDENT_MAX {
                format!("(depth {}) ", link.depth)
            } else {
                String::new()
            };
            let text = link.flow.to_string().replace('\n', &format!("\n{indent}{below}"));
            let start = if link.depth == 0 { "" } else { "\n" };
            write!(f, "{start}{indent}{branch}{depth}{text}")?;
            if link.depth > 0 {
                open.push(!is_last);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.depth, self.flow)
    }
}
