//! One value of any type, small ones without an allocation.

use document::{Field, Fields};

use super::keys::nameless;

/// An element without a name: an ObjectId, a date and all numbers but decimals fit in.
#[derive(Debug, Default)]
pub(super) enum Held {
    #[default]
    Nothing,
    Small {
        length: u8,
        bytes: [u8; 14],
    },
    Large(Box<[u8]>),
}

impl Held {
    /// Takes a value in instead of the one before; how many bytes more that has taken.
    pub(super) fn set(&mut self, field: Field<'_>) -> usize {
        let value = field.value_bytes();
        let before = self.allocated();
        let mut bytes = [0; 14];
        *self = match (bytes.get_mut(2..2 + value.len()), u8::try_from(2 + value.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(value);
                bytes[0] = field.element_type() as u8;
                Self::Small { length, bytes }
            }
            _ => {
                let mut large = Vec::with_capacity(value.len() + 2);
                nameless(field, &mut large);
                Self::Large(large.into_boxed_slice())
            }
        };
        self.allocated().saturating_sub(before)
    }

    const fn allocated(&self) -> usize {
        match self {
            Self::Large(bytes) => bytes.len(),
            _ => 0,
        }
    }

    pub(super) fn field(&self) -> Option<Field<'_>> {
        let bytes = match self {
            Self::Nothing => return None,
            Self::Small { length, bytes } => bytes.get(..usize::from(*length))?,
            Self::Large(bytes) => bytes,
        };
        Fields::over_elements(bytes).next()
    }
}
