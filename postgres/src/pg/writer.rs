//! The connection that writes.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millrun_core::{Epoch, Partition, Sequence};
use millrun_persistence::{MailAddress, TopicNumber, TopicRowOutline};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{Connection, LEFT, get};
use super::tables;
use super::values::{IdValue, RunValue, limit, long, micros, number, part, partition, small, time, topic};
use super::{BackendName, PgServer};
use crate::outcome::Move;
use crate::retained::FrontRun;
use crate::rows::FlushRows;
use crate::server::{Flushed, HeldPartition, ServerTrouble, WriterSession};

/// How often the lock of the store is tried for after a lost connection, and the pause between two tries.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Stands in the place of the partition for mail to nodes.
pub(super) const NO_PART: i16 = -1;

pub(super) struct PgWriter {
    server: Arc<PgServer>,
    connection: Connection,
    backend: BackendName,
}

impl PgWriter {
    /// Opens a session that replaces a lost one.
    pub(super) fn connect(server: &Arc<PgServer>) -> Result<Self, ServerTrouble> {
        let (connection, facts) = Connection::open_writing(server, Duration::MAX)?;
        if !facts.syncs && server.durability == millrun_persistence::Durability::Durable {
            return Err(ServerTrouble::Failed(
                "the server runs with fsync=off now".to_owned(),
            ));
        }
        Ok(Self::of(server, connection, facts.backend))
    }

    pub(super) fn of(server: &Arc<PgServer>, connection: Connection, backend: BackendName) -> Self {
        Self {
            server: Arc::clone(server),
            connection,
            backend,
        }
    }

    /// Takes the lock of the store. The server may believe that a lost session still has it.
    fn lock(&mut self) -> Result<bool, ServerTrouble> {
        let schema = self.server.address.schema.clone();
        for _ in 0..LOCK_TRIES {
            // Noted before the lock is asked for: if the answer is lost, the next session ends this one.
            let mut sessions = self.server.sessions();
            if !sessions.contains(&self.backend) {
                sessions.push(self.backend.clone());
            }
            drop(sessions);
            let (lock, node) = (self.server.lock_statement(), &self.server.node);
            let row = self.connection.one(lock, &[&schema, node])?;
            if get(&row, 0)? && get(&row, 1)? {
                *self.server.sessions() = vec![self.backend.clone()];
                return Ok(true);
            }
            let sessions = self.server.sessions().clone();
            for former in sessions.into_iter().filter(|former| *former != self.backend) {
                let values: [&(dyn ToSql + Sync); 3] = [&former.pid, &former.started, &schema];
                let ended = self.connection.rows(tables::END_SESSION, &values)?;
                if ended.is_empty() {
                    self.server.sessions().retain(|noted| *noted != former);
                }
            }
            thread::sleep(LOCK_PAUSE);
        }
        Ok(false)
    }

    /// Reads the server's answer to a statement that moves the marker.
    fn flushed(&self, moved: Move, row: &Row, others: (u64, u64)) -> Result<Flushed, ServerTrouble> {
        let has_moved = get(row, 1)?;
        if has_moved {
            self.server.known().marker = moved.to;
        }
        Ok(Flushed {
            has_term: get(row, 0)?,
            has_moved,
            now: time(get(row, 2)?),
            others,
        })
    }
}

impl WriterSession for PgWriter {
    fn flush(&mut self, moved: Move, rows: &FlushRows) -> Result<Flushed, ServerTrouble> {
        let turns = &rows.turns;
        let turn_parts: Vec<_> = turns.iter().map(|turn| part(turn.run)).collect();
        let turn_runs: Vec<_> = turns.iter().map(|turn| RunValue(turn.run)).collect();
        let turn_firsts: Vec<_> = turns.iter().map(|turn| long(turn.first)).collect();
        let turn_lasts: Vec<_> = turns.iter().map(|turn| long(turn.last)).collect();
        let turn_frames: Vec<&[u8]> = turns.iter().map(|turn| &turn.frames[..]).collect();

        let trimmed_parts: Vec<_> = rows.trimmed.iter().map(|(run, _)| part(*run)).collect();
        let trimmed_runs: Vec<_> = rows.trimmed.iter().map(|(run, _)| RunValue(*run)).collect();
        let trimmed_before: Vec<_> = rows.trimmed.iter().map(|(_, before)| long(*before)).collect();

        let opened_parts: Vec<_> = rows.opened.iter().map(|(run, _)| part(*run)).collect();
        let opened_runs: Vec<_> = rows.opened.iter().map(|(run, _)| RunValue(*run)).collect();
        let opened_ids: Vec<&[u8]> = rows.opened.iter().map(|(_, id)| id.as_bytes()).collect();

        let closed_parts: Vec<_> = rows.closed.iter().map(|run| part(*run)).collect();
        let closed_runs: Vec<_> = rows.closed.iter().copied().map(RunValue).collect();

        let finished = &rows.finished;
        let numbers: Vec<_> = finished.iter().map(|row| row.number.map(long)).collect();
        let finished_parts: Vec<_> = finished.iter().map(|row| part(row.run)).collect();
        let finished_runs: Vec<_> = finished.iter().map(|row| RunValue(row.run)).collect();
        let finished_ids: Vec<Option<&[u8]>> = finished
            .iter()
            .map(|row| row.id.as_ref().map(|id| id.as_bytes()))
            .collect();
        let started: Vec<_> = finished.iter().map(|row| micros(row.run.started())).collect();
        let closed_at: Vec<_> = finished.iter().map(|row| micros(row.closed_at)).collect();
        let heads: Vec<_> = finished.iter().map(|row| long(row.head)).collect();
        let kinds: Vec<_> = finished.iter().map(|row| i16::from(row.kind)).collect();
        let bytes: Vec<_> = finished.iter().map(|row| long(row.bytes)).collect();
        let gone: Vec<_> = finished.iter().map(|row| row.is_gone).collect();

        let (first, forgotten) = (long(rows.first), long(rows.forgotten));
        let forgotten_before = long(rows.forgotten_before);

        let snapshots = &rows.snapshots;
        let snapshot_parts: Vec<_> = snapshots.iter().map(|row| part(row.run)).collect();
        let snapshot_runs: Vec<_> = snapshots.iter().map(|row| RunValue(row.run)).collect();
        let snapshot_sequences: Vec<_> = snapshots.iter().map(|row| long(row.sequence)).collect();
        let folded: Vec<Vec<u8>> = snapshots
            .iter()
            .map(|row| sealed(row.sequence, &row.folded))
            .collect();
        let gone_parts: Vec<_> = rows.no_snapshots.iter().map(|run| part(*run)).collect();
        let gone_runs: Vec<_> = rows.no_snapshots.iter().copied().map(RunValue).collect();

        let partitions = &rows.partitions;
        let epoch_parts: Vec<_> = partitions
            .iter()
            .map(|row| small(row.partition.index()))
            .collect();
        let epochs: Vec<_> = partitions.iter().map(|row| epoch_bits(row.epoch.get())).collect();
        let released: Vec<_> = partitions.iter().map(|row| row.is_released).collect();
        let retained_lens = partitions
            .iter()
            .map(|row| row.retained.map(|(len, _)| long(len)));
        let retained_lens: Vec<_> = retained_lens.collect();
        let retained_bytes = partitions
            .iter()
            .map(|row| row.retained.map(|(_, bytes)| long(bytes)));
        let retained_bytes: Vec<_> = retained_bytes.collect();

        let names = &rows.topics.names;
        let numbers_of_topics: Vec<_> = names.iter().map(|name| topic(name.number)).collect();
        let topic_names: Vec<&[u8]> = names.iter().map(|name| name.name.as_bytes()).collect();
        let ages: Vec<_> = names
            .iter()
            .map(|name| age_bits(name.retention.age_max))
            .collect();
        let topic_bytes: Vec<_> = names
            .iter()
            .map(|name| name.retention.bytes_max.cast_signed())
            .collect();
        let topic_lens: Vec<_> = names
            .iter()
            .map(|name| name.retention.len_max.cast_signed())
            .collect();
        let unread = names
            .iter()
            .map(|name| name.retention.unread_bytes_max.cast_signed());
        let topic_unread: Vec<_> = unread.collect();
        let topic_dropped: Vec<_> = names.iter().map(|name| long(name.dropped.get())).collect();

        let records = &rows.topics.sealed.rows;
        let row_topics: Vec<_> = records.iter().map(|row| topic(row.topic)).collect();
        let row_firsts: Vec<_> = records.iter().map(|row| long(row.first.get())).collect();
        let row_lens: Vec<_> = records
            .iter()
            .map(|row| i32::try_from(row.len).unwrap_or(i32::MAX))
            .collect();
        let row_times: Vec<_> = records.iter().map(|row| micros(row.last)).collect();
        let row_frames: Vec<&[u8]> = records.iter().map(|row| &row.frames[..]).collect();
        let gone_topics: Vec<_> = rows.topics.gone.iter().map(|(of, _)| topic(*of)).collect();
        let gone_firsts: Vec<_> = rows
            .topics
            .gone
            .iter()
            .map(|(_, first)| long(first.get()))
            .collect();

        let ids = &rows.topics.sealed.ids;
        let id_numbers: Vec<_> = ids.iter().map(|id| long(id.number)).collect();
        let id_topics: Vec<_> = ids.iter().map(|id| topic(id.topic)).collect();
        let id_values: Vec<_> = ids.iter().map(|id| IdValue(id.id)).collect();
        let id_sequences: Vec<_> = ids.iter().map(|id| long(id.sequence.get())).collect();
        let ids_from = long(rows.topics.sealed.ids_from);
        let ids_from_before = long(rows.topics.ids_from_before);

        let of_node = &rows.of_node;
        let forgets: Vec<_> = of_node.forgets.iter().map(|of| small(of.index())).collect();
        let dropped: Vec<_> = of_node.dropped.iter().copied().map(long).collect();
        let (len, bytes_retained) = (long(of_node.retained.0), long(of_node.retained.1));

        let posted = &of_node.mail.posted;
        let (mail_parts, mail_holders): (Vec<_>, Vec<_>) =
            posted.iter().map(|mail| address_values(mail.to)).unzip();
        let mail_bodies: Vec<&[u8]> = posted.iter().map(|mail| &mail.body[..]).collect();
        let handled: Vec<_> = of_node.mail.handled.iter().copied().map(long).collect();
        let aside: Vec<_> = of_node.mail.aside.iter().copied().map(long).collect();

        let server = Arc::clone(&self.server);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            &server.node,
            &moved.term,
            &moved.from,
            &moved.to,
            &turn_parts,
            &turn_runs,
            &turn_firsts,
            &turn_lasts,
            &turn_frames,
            &trimmed_parts,
            &trimmed_runs,
            &trimmed_before,
            &opened_parts,
            &opened_runs,
            &opened_ids,
            &closed_parts,
            &closed_runs,
            &numbers,
            &finished_parts,
            &finished_runs,
            &finished_ids,
            &started,
            &closed_at,
            &heads,
            &kinds,
            &bytes,
            &first,
            &forgotten,
            &snapshot_parts,
            &snapshot_runs,
            &snapshot_sequences,
            &folded,
            &gone_parts,
            &gone_runs,
            &epoch_parts,
            &epochs,
            &numbers_of_topics,
            &topic_names,
            &ages,
            &topic_bytes,
            &topic_lens,
            &topic_dropped,
            &row_topics,
            &row_firsts,
            &row_lens,
            &row_times,
            &row_frames,
            &gone_topics,
            &gone_firsts,
            &id_numbers,
            &id_topics,
            &id_values,
            &id_sequences,
            &ids_from,
            &topic_unread,
            &forgotten_before,
            &ids_from_before,
        ];
        let statement = match server.is_shared {
            true => {
                values.push(&forgets);
                values.push(&dropped);
                values.push(&len);
                values.push(&bytes_retained);
                values.push(&released);
                values.push(&server.holder);
                values.push(&gone);
                values.push(&retained_lens);
                values.push(&retained_bytes);
                values.push(&mail_parts);
                values.push(&mail_holders);
                values.push(&mail_bodies);
                values.push(&handled);
                values.push(&aside);
                tables::FLUSH_NODE
            }
            false => tables::FLUSH,
        };
        let row = self.connection.one(statement, &values)?;
        let others = match server.is_shared {
            true => (number(get(&row, 3)?), number(get(&row, 4)?)),
            false => (0, 0),
        };
        self.flushed(moved, &row, others)
    }

    fn hold(&mut self, moved: Move, partitions: &[Partition]) -> Result<Flushed, ServerTrouble> {
        let parts: Vec<_> = partitions.iter().map(|of| small(of.index())).collect();
        let server = Arc::clone(&self.server);
        let row = self.connection.one(
            tables::HOLD,
            &[
                &server.node,
                &moved.term,
                &moved.from,
                &moved.to,
                &parts,
                &server.holder,
            ],
        )?;
        self.flushed(moved, &row, (0, 0))
    }

    fn held(&mut self, partitions: &[Partition]) -> Result<Vec<HeldPartition>, ServerTrouble> {
        let parts: Vec<_> = partitions.iter().map(|of| small(of.index())).collect();
        let rows = self.connection.rows(tables::HELD, &[&parts])?;
        let held = rows.iter().map(|row| {
            let holder: i64 = get(row, 1)?;
            Ok(HeldPartition {
                partition: partition(get(row, 0)?)?,
                is_ours: holder == self.server.holder,
                is_held: holder != 0,
                epoch: Epoch::new(get::<i64>(row, 2)?.cast_unsigned()),
            })
        });
        held.collect()
    }

    fn leave(&mut self) -> Result<(), ServerTrouble> {
        let server = Arc::clone(&self.server);
        self.connection
            .rows(tables::LEAVE, &[&server.node, &server.holder])?;
        let schema = &server.address.schema;
        if let Err(error) = self.connection.batch(&format!("NOTIFY \"{schema}\", '{LEFT}'")) {
            // The other nodes find it with their next look.
            tracing::debug!(%error, "the other nodes could not be told that this one has left");
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), ServerTrouble> {
        self.connection.batch("SET synchronous_commit = on")
    }

    fn raise_term(&mut self) -> Result<Option<i64>, ServerTrouble> {
        let server = Arc::clone(&self.server);
        let values: [&(dyn ToSql + Sync); 4] = [
            &server.node,
            &server.holder,
            &self.backend.pid,
            &self.backend.started,
        ];
        let Some(row) = self.connection.first(tables::RAISE, &values)? else {
            return Ok(None);
        };
        let term = get(&row, 0)?;
        self.server.known().term = term;
        // Another opening that has the lock by now, and has not raised the term, is about to.
        Ok(self.lock()?.then_some(term))
    }

    fn marker(&mut self) -> Result<Option<i64>, ServerTrouble> {
        let server = Arc::clone(&self.server);
        let row = self.connection.first(tables::MARKER, &[&server.node])?;
        row.map(|row| get(&row, 0)).transpose()
    }

    fn topic_front(
        &mut self,
        of: TopicNumber,
        behind: Sequence,
        len_max: usize,
    ) -> Result<Vec<TopicRowOutline>, ServerTrouble> {
        let values: [&(dyn ToSql + Sync); 3] = [&topic(of), &long(behind.get()), &limit(len_max)];
        let rows = self.connection.rows(tables::TOPIC_FRONT, &values)?;
        let outlines = rows.iter().map(|row| {
            Ok(TopicRowOutline {
                first: Sequence::new(number(get(row, 0)?)),
                end: Sequence::new(number(get(row, 1)?)),
                bytes: number(get(row, 2)?),
                last: time(get(row, 3)?),
            })
        });
        outlines.collect()
    }

    fn earliest(
        &mut self,
        from: u64,
        len_max: usize,
        partitions: Option<&[Partition]>,
    ) -> Result<Vec<FrontRun>, ServerTrouble> {
        let (from, len_max) = (long(from), limit(len_max));
        let rows = match partitions {
            None => self.connection.rows(tables::EARLIEST, &[&from, &len_max])?,
            Some(partitions) => {
                let parts: Vec<_> = partitions.iter().map(|of| small(of.index())).collect();
                self.connection
                    .rows(tables::EARLIEST_OF, &[&from, &len_max, &parts])?
            }
        };
        let runs = rows.iter().map(|row| {
            let run: RunValue = get(row, 1)?;
            Ok(FrontRun {
                number: number(get(row, 0)?),
                run: run.0,
                closed_at: time(get(row, 2)?),
                bytes: number(get(row, 3)?),
            })
        });
        runs.collect()
    }
}

/// An epoch uses all 64 bits, and is compared as a `bigint`. Openings are counted from zero, so the highest bit is clear for
/// two thousand million of them.
pub(super) fn epoch_bits(epoch: u64) -> i64 {
    epoch.cast_signed()
}

/// The address of mail: a partition; or -1 and a holder; or -1 and zero.
fn address_values(to: MailAddress) -> (i16, i64) {
    match to {
        MailAddress::Partition(partition) => (small(partition.index()), 0),
        MailAddress::Node(number) => (NO_PART, number.cast_signed()),
        MailAddress::OtherNodes => (NO_PART, 0),
    }
}

/// The age of a retention in microseconds; all bits set stand for "for ever".
fn age_bits(age: Duration) -> i64 {
    u64::try_from(age.as_micros()).unwrap_or(u64::MAX).cast_signed()
}

/// Reads an age that [`age_bits`] wrote.
pub(super) fn age_of(bits: i64) -> Duration {
    match bits.cast_unsigned() {
        u64::MAX => Duration::MAX,
        micros => Duration::from_micros(micros),
    }
}

/// A snapshot with a checksum, by which damage is noticed.
pub(super) fn sealed(sequence: u64, folded: &[u8]) -> Vec<u8> {
    let mut sealed = checksum(sequence, folded).to_le_bytes().to_vec();
    sealed.extend_from_slice(folded);
    sealed
}

pub(super) fn checksum(sequence: u64, folded: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), folded)
}
