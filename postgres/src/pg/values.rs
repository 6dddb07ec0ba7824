//! Values in the form in which PostgreSQL takes them.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use millrun_core::{Partition, RunId, Timestamp};
use millrun_persistence::TopicNumber;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::server::ServerTrouble;

/// A run as a `uuid`, with its bits in the order of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunValue(pub(super) RunId);

impl ToSql for RunValue {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u128(self.0.bits());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for RunValue {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let bits = u128::from_be_bytes(raw.try_into()?);
        Ok(Self(
            RunId::from_bits(bits).ok_or("a run has a partition that there is not")?,
        ))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// An id of 128 bits as a `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdValue(pub(super) u128);

impl ToSql for IdValue {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for IdValue {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(u128::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// The number of a topic as an `int`; there are fewer than a million.
pub(super) fn topic(number: TopicNumber) -> i32 {
    i32::try_from(number.get()).unwrap_or(i32::MAX)
}

/// A number as a `bigint`; numbers beyond its range become the greatest.
pub(super) fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The largest number of rows to ask for.
pub(super) fn limit(len_max: usize) -> i64 {
    i64::try_from(len_max).unwrap_or(i64::MAX)
}

/// A number that was stored by [`long`].
pub(super) fn number(long: i64) -> u64 {
    u64::try_from(long).unwrap_or(0)
}

pub(super) fn micros(time: Timestamp) -> i64 {
    long(time.as_micros())
}

pub(super) fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(number(micros))
}

/// The partition of a run as a `smallint`.
pub(super) fn part(run: RunId) -> i16 {
    small(run.partition().index())
}

pub(super) fn small(partition: u16) -> i16 {
    i16::try_from(partition).expect("a partition is below 1,024")
}

/// A partition that was stored by [`small`].
pub(super) fn partition(stored: i16) -> Result<Partition, ServerTrouble> {
    let partition = u16::try_from(stored).ok().and_then(Partition::from_index);
    partition.ok_or_else(|| {
        ServerTrouble::Failed("a row of the store names a partition that there is not".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_as_they_were_written_and_sorted_by_their_partitions() {
        let bytes = |run| {
            let mut out = BytesMut::new();
            RunValue(run).to_sql(&Type::UUID, &mut out).unwrap();
            out.freeze()
        };
        let runs = [1, 2, 300, 1_023].map(|index| {
            let partition = Partition::from_index(index).unwrap();
            RunId::new(partition, Timestamp::from_micros(5_000), 7)
        });
        assert!(runs.map(bytes).is_sorted());
        for run in runs {
            assert_eq!(RunValue::from_sql(&Type::UUID, &bytes(run)).unwrap().0, run);
        }
        assert!(RunValue::from_sql(&Type::UUID, &[0xff; 16]).is_err());
        assert!(RunValue::from_sql(&Type::UUID, &[0; 15]).is_err());
    }
}
