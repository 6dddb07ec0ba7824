//! The suite that every journal passes.

use std::cell::Cell;

use millrun_file_journal::FileJournal;
use millrun_persistence::contract::{self, Subject};
use millrun_persistence::{Journal, JournalConfig};

struct Files {
    folder: tempfile::TempDir,
    count: Cell<u32>,
}

impl Files {
    fn open(&self, config: JournalConfig) -> FileJournal {
        let path = self.folder.path().join(format!("{}.journal", self.count.get()));
        crate::opened(path, config).unwrap()
    }
}

impl Subject for Files {
    type Journal = FileJournal;

    fn fresh(&self, config: JournalConfig) -> FileJournal {
        self.count.set(self.count.get() + 1);
        self.open(config)
    }

    fn reopen(&self, journal: FileJournal, config: JournalConfig) -> FileJournal {
        journal.close().unwrap();
        self.open(config)
    }
}

#[test]
fn the_file_journal_keeps_the_contract() {
    let subject = Files {
        folder: tempfile::tempdir().unwrap(),
        count: Cell::new(0),
    };
    let cases = contract::cases::<Files>();
    assert!(cases.len() >= 60, "the suite has {} cases", cases.len());
    for case in cases {
        println!("{}", case.name);
        (case.run)(&subject);
    }
}
