//! A run that waits on disk: in memory is only what finds it again.
//!
//! ```text
//!   Entry (112 bytes, its id apart) ── unloaded, nobody waits for it ──► Sleeper (32 bytes in all)
//!         ▲                                                                 │
//!         └───────────────────────── a message wants it ─────────────────────┘
//! ```
//!
//! A shard may hold a million of these, so a short id is stored in place, and the workflow's name as a number.

use millrun_core::InstanceId;

use super::entry::{Entry, Parking, WorkflowName};

/// How many workflow names get a number. A run of any other workflow is not put to sleep.
const NAMES_LEN_MAX: usize = 256;

/// Ids of up to this many bytes are stored in place.
const IN_PLACE_MAX: usize = 22;

#[derive(Debug)]
pub(in crate::shard) struct Sleeper {
    id: ShortId,
    /// The number of its workflow's name in [`Names`].
    workflow: u16,
    pub(in crate::shard) parking: Parking,
}

#[derive(Debug)]
enum ShortId {
    InPlace { len: u8, bytes: [u8; IN_PLACE_MAX] },
    Shared(InstanceId),
}

impl ShortId {
    fn new(id: InstanceId) -> Self {
        let mut bytes = [0; IN_PLACE_MAX];
        let text = id.as_str().as_bytes();
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text);
                Self::InPlace { len, bytes }
            }
            _ => Self::Shared(id),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::InPlace { len, bytes } => {
                std::str::from_utf8(&bytes[..usize::from(*len)]).expect("it was the text of an id")
            }
            Self::Shared(id) => id.as_str(),
        }
    }
}

impl Sleeper {
    pub(in crate::shard) fn id(&self) -> &str {
        self.id.as_str()
    }
}

/// The names of the workflows that have sleeping runs, by number.
#[derive(Debug, Default)]
pub(in crate::shard) struct Names(Vec<WorkflowName>);

impl Names {
    /// Puts a run to sleep if it [can sleep](Entry::can_sleep) and its workflow's name has or gets a number; otherwise
    /// returns it.
    pub(in crate::shard) fn put_to_sleep(&mut self, entry: Entry) -> Result<Sleeper, Entry> {
        if !entry.can_sleep() {
            return Err(entry);
        }
        let name = &entry.workflow;
        let known = self.0.iter().position(|known| known.is_same(name));
        let number = known.unwrap_or(self.0.len());
        if number == NAMES_LEN_MAX {
            return Err(entry);
        }
        if number == self.0.len() {
            self.0.push(entry.workflow.clone());
        }
        Ok(Sleeper {
            id: ShortId::new(entry.id),
            workflow: u16::try_from(number).expect("there are not that many names"),
            parking: entry.parking,
        })
    }

    pub(in crate::shard) fn of(&self, sleeper: &Sleeper) -> &WorkflowName {
        &self.0[usize::from(sleeper.workflow)]
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, RunId, Timestamp};
    use millrun_workflow::{Name, OperationId, Parent, ParentClose};

    use super::super::entry::Residence;
    use super::*;

    fn entry(id: &str, workflow: &str) -> Entry {
        let id = InstanceId::new(id).unwrap();
        let run = RunId::new(id.partition(), Timestamp::EPOCH, 1);
        let workflow = WorkflowName::new(Name::Owned(workflow.to_owned()), 0, None);
        Entry::new(run, id, workflow, Residence::Cold)
    }

    #[test]
    fn ids_of_any_length_are_kept() {
        let mut names = Names::default();
        for len in 1..=InstanceId::BYTES_MAX {
            let id = "i".repeat(len);
            let sleeper = names.put_to_sleep(entry(&id, "w")).unwrap();
            assert_eq!(sleeper.id(), id);
            assert_eq!(names.of(&sleeper).as_str(), "w");
        }
        assert_eq!(names.0.len(), 1);
        assert!(size_of::<Sleeper>() <= 32);
    }

    #[test]
    fn what_an_instance_began_as_is_known_of_one_asleep() {
        let mut names = Names::default();
        for (began_as, expected) in [(None, "bill"), (Some("order"), "order"), (Some("trip"), "trip")] {
            for _ in 0..2 {
                let mut entry = entry("i", "bill");
                entry.workflow = WorkflowName::new("bill".into(), 0, began_as.map(Name::Borrowed));
                let sleeper = names.put_to_sleep(entry).unwrap();
                let name = names.of(&sleeper);
                assert_eq!((name.as_str(), name.began_as()), ("bill", expected));
            }
        }
        assert_eq!(names.0.len(), 3);
    }

    #[test]
    fn runs_of_more_workflows_than_are_numbered_stay_awake() {
        let mut names = Names::default();
        for number in 0..NAMES_LEN_MAX + 3 {
            let name = format!("w-{number}");
            let slept = names.put_to_sleep(entry("i", &name));
            assert_eq!(slept.is_ok(), number < NAMES_LEN_MAX);
        }
        assert!(names.put_to_sleep(entry("i", "w-7")).is_ok());
    }

    #[test]
    fn children_and_those_who_are_on_their_way_stay_awake() {
        let mut names = Names::default();
        let id = InstanceId::new("p").unwrap();
        let parent = Parent {
            run: RunId::new(Partition::of(b"p"), Timestamp::EPOCH, 2),
            operation: OperationId::new(1),
            on_close: ParentClose::Cancel,
        };
        assert!(
            names
                .put_to_sleep(entry("i", "w").with_parent(Some(parent)))
                .is_err()
        );
        let mut loading = entry("i", "w");
        loading.residence = Residence::Loading(Box::default());
        assert!(names.put_to_sleep(loading).is_err());
        let (reply, _answer) = tokio::sync::oneshot::channel();
        let mut awaited = Entry::new(parent.run, id, WorkflowName::Known("w"), Residence::Cold);
        awaited.wait(reply.into());
        assert!(names.put_to_sleep(awaited).is_err());
    }
}
