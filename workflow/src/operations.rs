//! A map with an entry for each pending operation, in the order of issue.
//!
//! Most runs have one or two entries at a time, and ids only grow, so this is a list and not a tree: a tree's smallest node
//! has room for eleven, which was a fifth of the memory of a run that waits for one step.
//!
//! Removing an entry from the middle leaves a gap. Gaps at the end are removed at once, the others when they are more than
//! half, so that a removal costs no more than a search.

use crate::OperationId;

/// A map by operation.
#[derive(Clone, Debug)]
pub(crate) struct Operations<V> {
    /// In the order of ids. `None` is a gap; the last entry is never one.
    entries: Vec<(OperationId, Option<V>)>,
    gaps: usize,
}

impl<V> Default for Operations<V> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            gaps: 0,
        }
    }
}

impl<V> Operations<V> {
    /// Puts a value in, in place of any former one.
    pub(crate) fn insert(&mut self, operation: OperationId, value: V) {
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(1);
        }
        if self.entries.last().is_none_or(|(last, _)| *last < operation) {
            self.entries.push((operation, Some(value)));
            return;
        }
        match self.find(operation) {
            Ok(index) => {
                if self.entries[index].1.replace(value).is_none() {
                    self.gaps -= 1;
                }
            }
            Err(index) => self.entries.insert(index, (operation, Some(value))),
        }
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, operation: OperationId) -> Option<V> {
        let value = if self.entries.last().is_some_and(|(last, _)| *last == operation) {
            self.entries.pop()?.1?
        } else {
            let index = self.find(operation).ok()?;
            let value = self.entries[index].1.take()?;
            self.gaps += 1;
            value
        };
        while self.entries.pop_if(|(_, value)| value.is_none()).is_some() {
            self.gaps -= 1;
        }
        if self.gaps > self.entries.len() / 2 {
            self.entries.retain(|(_, value)| value.is_some());
            self.gaps = 0;
        }
        Some(value)
    }

    pub(crate) fn get(&self, operation: OperationId) -> Option<&V> {
        let index = self.find(operation).ok()?;
        self.entries[index].1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, operation: OperationId) -> Option<&mut V> {
        let index = self.find(operation).ok()?;
        self.entries[index].1.as_mut()
    }

    /// All of them, in the order of ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (OperationId, &V)> {
        self.entries
            .iter()
            .filter_map(|(operation, value)| Some((*operation, value.as_ref()?)))
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len() - self.gaps
    }

    /// The capacity.
    pub(crate) const fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.gaps = 0;
    }

    fn find(&self, operation: OperationId) -> Result<usize, usize> {
        self.entries
            .binary_search_by_key(&operation, |(operation, _)| *operation)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_map_in_the_order_of_ids() {
        // A simple generator: a random order that is the same in each run of the test.
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut operations = Operations::default();
        let mut model = BTreeMap::new();
        for step in 0..20_000 {
            let operation = OperationId::new(u32::try_from(random(60)).unwrap());
            match random(5) {
                0 | 1 => {
                    operations.insert(operation, step);
                    model.insert(operation, step);
                }
                2 | 3 => assert_eq!(operations.remove(operation), model.remove(&operation)),
                _ => {
                    let value = operations.get_mut(operation).map(|value| {
                        *value += 1;
                        *value
                    });
                    let expected = model.get_mut(&operation).map(|value| {
                        *value += 1;
                        *value
                    });
                    assert_eq!(value, expected);
                }
            }
            assert_eq!(operations.get(operation), model.get(&operation));
            assert_eq!(operations.len(), model.len());
            assert!(operations.entries.len() <= 2 * model.len() + 1);
            assert!(
                operations
                    .iter()
                    .eq(model.iter().map(|(key, value)| (*key, value)))
            );
        }
        operations.clear();
        assert_eq!((operations.len(), operations.iter().count()), (0, 0));
    }
}
