//! `timestamptz` as microseconds since 1970: the wire form is microseconds since 2000, and
//! `infinity` is the end of time.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef, Postgres};
use sqlx::{Decode, Encode, Type};

const EPOCH_2000_US: i64 = 946_684_800_000_000;
const TIMESTAMPTZ: Oid = Oid(1184);
const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment(pub(super) i64);

impl Moment {
    /// As the wire has it.
    pub(super) const fn wire(self) -> i64 {
        if self.0 == i64::MAX { i64::MAX } else { self.0.saturating_sub(EPOCH_2000_US) }
    }

    const fn from_wire(us: i64) -> Self {
        Self(us.saturating_add(EPOCH_2000_US))
    }
}

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ_ARRAY)
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.wire().to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Moment {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let bytes: [u8; 8] = value.as_bytes()?.try_into()?;
        Ok(Self::from_wire(i64::from_be_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_survive_the_wire() {
        for us in [0, 1, EPOCH_2000_US, 253_402_300_799_999_000, i64::MAX] {
            assert_eq!(Moment::from_wire(Moment(us).wire()), Moment(us));
        }
        assert_eq!(Moment(i64::MAX).wire(), i64::MAX, "infinity");
    }
}
