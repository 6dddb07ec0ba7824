//! The connection that reads mail, and by which nodes notify each other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{Epoch, Partition};
use millrun_persistence::UnreadMail;
use tokio::sync::Notify;
use tokio_postgres::types::ToSql;

use super::connection::{Connection, get};
use super::reader::check_place;
use super::values::{limit, long, number, partition, small};
use super::writer::NO_PART;
use super::{PgServer, tables};
use crate::server::{MailSession, ServerTrouble, ToldByNodes, WantedMail};

/// How long a host or an answer is waited for. The mail thread tries again.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);

pub(super) struct PgMail {
    server: Arc<PgServer>,
    connection: Connection,
    /// The term of the writer when this session was opened.
    term: i64,
    /// The statement that notifies the other sessions.
    tell: String,
}

impl PgMail {
    pub(super) fn connect(server: &Arc<PgServer>) -> Result<Self, ServerTrouble> {
        let (mut connection, _) = Connection::open_writing(server, ANSWER_WAIT_MAX)?;
        let known = *server.known();
        check_place(server, &mut connection, known)?;
        let schema = &server.address.schema;
        connection.batch(&format!("LISTEN \"{schema}\""))?;
        Ok(Self {
            server: Arc::clone(server),
            connection,
            term: known.term,
            tell: format!("NOTIFY \"{schema}\""),
        })
    }
}

impl MailSession for PgMail {
    fn is_outdated(&self) -> bool {
        self.server.known().term != self.term
    }

    fn unread(&mut self, wanted: &WantedMail) -> Result<Vec<UnreadMail>, ServerTrouble> {
        let parts: Vec<_> = wanted.partitions.iter().map(|of| small(of.index())).collect();
        let except: Vec<_> = wanted.except.iter().copied().map(long).collect();
        let values: [&(dyn ToSql + Sync); 5] = [
            &self.server.holder,
            &parts,
            &except,
            &limit(wanted.len_max),
            &limit(wanted.bytes_max),
        ];
        let rows = self.connection.rows(tables::UNREAD_MAIL, &values)?;
        let unread = rows.iter().map(|row| {
            let part: i16 = get(row, 1)?;
            let is_of_node = part == NO_PART;
            Ok(UnreadMail {
                number: number(get(row, 0)?),
                partition: (!is_of_node).then(|| partition(part)).transpose()?,
                body: Bytes::copy_from_slice(get(row, 2)?),
            })
        });
        unread.collect()
    }

    fn epochs(&mut self, partitions: &[Partition]) -> Result<Vec<(Partition, Epoch)>, ServerTrouble> {
        let parts: Vec<_> = partitions.iter().map(|of| small(of.index())).collect();
        let rows = self.connection.rows(tables::HELD, &[&parts])?;
        let epochs = rows.iter().map(|row| {
            let epoch = Epoch::new(get::<i64>(row, 2)?.cast_unsigned());
            Ok((partition(get(row, 0)?)?, epoch))
        });
        epochs.collect()
    }

    fn tell(&mut self) -> Result<(), ServerTrouble> {
        self.connection.batch(&self.tell)
    }

    fn wait(&mut self, wake: &Notify, wait_max: Duration) -> ToldByNodes {
        self.connection.wait_told(wake, wait_max)
    }
}
