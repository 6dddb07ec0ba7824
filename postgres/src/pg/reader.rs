//! A connection that reads.

use std::sync::Arc;

use bytes::Bytes;
use millrun_core::{InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::{
    FinishedHead, FinishedRun, FinishedSearch, Snapshot, StoredTopicRow, TopicNumber, frames,
};
use tokio_postgres::Row;

use super::connection::{ConnectError, Connection, get};
use super::tables;
use super::values::{RunValue, limit, long, micros, number, part, partition, small, time, topic};
use super::writer::checksum;
use super::{PgServer, StorePlace};
use crate::heads::LiveHead;
use crate::server::{
    EachTurn, FinishedPage, ReaderSession, RetainedCounts, ServerTrouble, StoredFinished, StoredHead,
    StoredPartitions, StoredTurn, StoredTurns,
};

/// How often a run is looked for again that began and ended between two looks.
const LOOKS_MAX: usize = 3;

pub(super) struct PgReader {
    server: Arc<PgServer>,
    connection: Connection,
    /// The term of the writer when this session was opened.
    term: i64,
}

impl PgReader {
    pub(super) fn connect(server: &Arc<PgServer>, must_be_ours: bool) -> Result<Self, ServerTrouble> {
        let lost = |error: ConnectError| ServerTrouble::Lost(error.to_string());
        let mut connection = Connection::open(server).map_err(lost)?;
        let facts = connection.set_up(server.durability, false)?;
        // A standby may lag behind what was acknowledged.
        if facts.is_standby {
            return Err(ServerTrouble::Lost("the server is a standby".to_owned()));
        }
        connection.bound_statements()?;
        // Read before the server is asked: the server may be ahead of it, but not behind.
        let known = *server.known();
        if must_be_ours {
            check_place(server, &mut connection, known)?;
        }
        Ok(Self {
            server: Arc::clone(server),
            connection,
            term: known.term,
        })
    }
}

/// Checks that a connection leads to the writer's server.
pub(super) fn check_place(
    server: &PgServer,
    connection: &mut Connection,
    known: StorePlace,
) -> Result<(), ServerTrouble> {
    let place = connection.first(tables::PLACE, &[&server.node])?;
    let is_ours = match &place {
        Some(row) => {
            let (holder, term, marker): (i64, i64, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            holder == server.holder && term >= known.term && marker >= known.marker
        }
        None => false,
    };
    if is_ours {
        return Ok(());
    }
    let why = "the server has not what was written: it is not the one that the writer has";
    Err(ServerTrouble::Lost(why.to_owned()))
}

/// A live run with its last turn.
pub(super) fn stored_head(row: &Row) -> Result<StoredHead, ServerTrouble> {
    let run = run_at(row, 0)?;
    let turn: (Option<i64>, Option<i64>, Option<&[u8]>) = (get(row, 1)?, get(row, 2)?, get(row, 3)?);
    let bytes = number(get::<Option<i64>>(row, 4)?.unwrap_or(0));
    let (Some(first), Some(last), Some(stored)) = turn else {
        return Ok(StoredHead {
            run,
            head: None,
            is_damaged: true,
        });
    };
    let before = number(first).saturating_sub(1);
    Ok(StoredHead {
        run,
        head: Some(LiveHead::new(before, number(last), stored, bytes)),
        is_damaged: !frames::is_sound(run, stored),
    })
}

fn run_at(row: &Row, at: usize) -> Result<RunId, ServerTrouble> {
    let run: RunValue = get(row, at)?;
    Ok(run.0)
}

fn damaged(what: &str) -> ServerTrouble {
    ServerTrouble::Failed(format!("a row of the store is damaged: {what}"))
}

impl ReaderSession for PgReader {
    fn is_outdated(&self) -> bool {
        self.server.known().term != self.term
    }

    fn turns(&mut self, run: RunId, after: u64, bytes_max: u64) -> Result<StoredTurns, ServerTrouble> {
        let (of, value) = (part(run), RunValue(run));
        // The greatest number leaves room for additions.
        let (after, bytes_max) = (long(after).min(i64::MAX - 1), long(bytes_max));
        for _ in 0..LOOKS_MAX {
            let rows = self
                .connection
                .rows(tables::TURNS, &[&of, &value, &after, &bytes_max])?;
            if let Some(first) = rows.first() {
                let last = number(get(first, 0)?);
                let mut turns = Vec::with_capacity(rows.len());
                for row in &rows {
                    let (Some(last), Some(frames)) =
                        (get::<Option<i64>>(row, 1)?, get::<Option<&[u8]>>(row, 2)?)
                    else {
                        continue;
                    };
                    turns.push(StoredTurn {
                        last: number(last),
                        frames: Bytes::copy_from_slice(frames),
                    });
                }
                return Ok(StoredTurns::Known { last, turns });
            }
            match self.connection.first(tables::FATE, &[&value])? {
                None => return Ok(StoredTurns::Unknown),
                Some(row) if get(&row, 0)? => return Ok(StoredTurns::Expired),
                // The run has begun and finished meanwhile.
                Some(_) => {}
            }
        }
        Ok(StoredTurns::Unknown)
    }

    fn run_bytes(&mut self, run: RunId) -> Result<u64, ServerTrouble> {
        let row = self
            .connection
            .one(tables::RUN_BYTES, &[&part(run), &RunValue(run)])?;
        Ok(number(get(&row, 0)?))
    }

    fn snapshot(&mut self, run: RunId) -> Result<Option<Snapshot>, ServerTrouble> {
        let Some(row) = self
            .connection
            .first(tables::SNAPSHOT, &[&part(run), &RunValue(run)])?
        else {
            return Ok(None);
        };
        let (sequence, sealed) = (number(get(&row, 0)?), get::<&[u8]>(&row, 1)?);
        // A damaged snapshot counts as none.
        let folded = sealed
            .split_first_chunk()
            .filter(|(sum, folded)| u32::from_le_bytes(**sum) == checksum(sequence, folded));
        Ok(folded.map(|(_, folded)| Snapshot {
            run,
            sequence: Sequence::new(sequence),
            bytes: Bytes::copy_from_slice(folded),
        }))
    }

    fn finished(&mut self, ids: &[String]) -> Result<Vec<StoredFinished>, ServerTrouble> {
        let bytes: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes()).collect();
        let rows = self.connection.rows(tables::FINISHED, &[&bytes])?;
        let found = ids.iter().zip(&rows).map(|(id, row)| {
            let Some(is_retained) = get::<Option<bool>>(row, 0)? else {
                return Ok(StoredFinished::Unknown);
            };
            let run = run_at(row, 1)?;
            if !is_retained {
                return Ok(StoredFinished::Expired(run));
            }
            let id = InstanceId::new(id).map_err(|error| damaged(&error.to_string()))?;
            let (closed_at, head) = (time(get(row, 2)?), Sequence::new(number(get(row, 3)?)));
            Ok(StoredFinished::Retained(FinishedRun::new(
                run, id, closed_at, head,
            )))
        });
        found.collect()
    }

    fn list_finished(
        &mut self,
        after: Option<RunId>,
        len_max: usize,
    ) -> Result<Vec<FinishedRun>, ServerTrouble> {
        let (after, len_max) = (after.map(RunValue), limit(len_max));
        let rows = self.connection.rows(tables::LIST_FINISHED, &[&after, &len_max])?;
        let runs = rows.iter().map(|row| {
            let id = std::str::from_utf8(get(row, 1)?).map_err(|_| damaged("an id is not text"))?;
            let id = InstanceId::new(id).map_err(|error| damaged(&error.to_string()))?;
            let (closed_at, head) = (time(get(row, 2)?), Sequence::new(number(get(row, 3)?)));
            Ok(FinishedRun::new(run_at(row, 0)?, id, closed_at, head))
        });
        runs.collect()
    }

    fn find_finished(
        &mut self,
        search: &FinishedSearch,
        len_max: usize,
    ) -> Result<FinishedPage, ServerTrouble> {
        let before = search.before.map(RunValue);
        let Some(bounds) = self.connection.first(tables::SEARCH_BOUNDS, &[&before])? else {
            return Ok(FinishedPage::default());
        };
        let (before, from, first): (i64, i64, i64) = (get(&bounds, 0)?, get(&bounds, 1)?, get(&bounds, 2)?);
        let kinds: Vec<_> = search.kinds.iter().map(i16::from).collect();
        let (closed, started) = (search.closed, search.started);
        let rows = self.connection.rows(
            tables::SEARCH,
            &[
                &from,
                &before,
                &kinds,
                &micros(closed.from),
                &micros(closed.until),
                &micros(started.from),
                &micros(started.until),
                // One more row shows whether there are more.
                &limit(len_max).saturating_add(1),
            ],
        )?;
        let mut page = FinishedPage::default();
        for row in rows.iter().take(len_max) {
            let kind = u8::try_from(get::<i16>(row, 3)?).map_err(|_| damaged("a kind is none"))?;
            let (closed_at, head) = (time(get(row, 1)?), Sequence::new(number(get(row, 2)?)));
            page.runs
                .push(FinishedHead::new(run_at(row, 0)?, closed_at, head, kind));
        }
        if rows.len() > len_max {
            page.next = match page.runs.last() {
                Some(last) => Some(last.run),
                None => search.before,
            };
        } else if from > first {
            let next = self.connection.first(tables::SEARCH_NEXT, &[&from, &before])?;
            page.next = next.map(|row| run_at(&row, 0)).transpose()?;
        }
        Ok(page)
    }

    fn topic_rows(
        &mut self,
        of: TopicNumber,
        after: Sequence,
        bytes_max: u64,
    ) -> Result<Vec<StoredTopicRow>, ServerTrouble> {
        let after = long(after.get()).min(i64::MAX - 1);
        let rows = self
            .connection
            .rows(tables::TOPIC_ROWS, &[&topic(of), &after, &long(bytes_max)])?;
        let rows = rows.iter().map(|row| {
            Ok(StoredTopicRow {
                topic: of,
                first: Sequence::new(number(get(row, 0)?)),
                len: u32::try_from(get::<i32>(row, 1)?).unwrap_or(0),
                last: time(get(row, 2)?),
                frames: Bytes::copy_from_slice(get(row, 3)?),
            })
        });
        rows.collect()
    }

    fn topic_at(&mut self, of: TopicNumber, at: Timestamp) -> Result<Option<Sequence>, ServerTrouble> {
        let row = self
            .connection
            .first(tables::TOPIC_AT, &[&topic(of), &micros(at)])?;
        row.map(|row| Ok(Sequence::new(number(get(&row, 0)?))))
            .transpose()
    }

    fn partitions(&mut self, partitions: &[Partition]) -> Result<StoredPartitions, ServerTrouble> {
        let parts: Vec<_> = partitions.iter().map(|of| small(of.index())).collect();
        let mut stored = StoredPartitions::default();
        self.connection.each(tables::HEADS_OF, &[&parts], &mut |row| {
            stored.live.push(stored_head(&row)?);
            Ok(())
        })?;
        stored.finished = self.retained(partitions)?;
        Ok(stored)
    }

    fn retained(&mut self, partitions: &[Partition]) -> Result<RetainedCounts, ServerTrouble> {
        let parts: Vec<_> = partitions.iter().map(|of| small(of.index())).collect();
        let mut retained = Vec::new();
        self.connection.each(tables::RETAINED_OF, &[&parts], &mut |row| {
            let counts = (number(get(&row, 1)?), number(get(&row, 2)?));
            retained.push((partition(get(&row, 0)?)?, counts));
            Ok(())
        })?;
        Ok(retained)
    }

    fn live_turns(
        &mut self,
        partitions: &[u16],
        after: Option<RunId>,
        each: EachTurn<'_>,
    ) -> Result<(), ServerTrouble> {
        let partitions: Vec<_> = partitions.iter().map(|partition| small(*partition)).collect();
        let after = after.map(RunValue);
        self.connection
            .each(tables::LIVE_TURNS, &[&partitions, &after], &mut |row| {
                let frames = get::<Option<&[u8]>>(&row, 1)?;
                each(
                    run_at(&row, 0)?,
                    frames.map(Bytes::copy_from_slice).unwrap_or_default(),
                );
                Ok(())
            })
    }
}
