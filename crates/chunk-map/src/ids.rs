//! Names of things, cheap to clone.

use std::borrow::Borrow;
use std::sync::Arc;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name with this text.
            #[must_use]
            pub fn new(text: &str) -> Self {
                Self(text.into())
            }

            /// Its text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name_type! {
    /// The `_id` of a shard in config.shards; `config` is the pseudo shard of the config servers.
    ShardId
}

name_type! {
    /// The name of a database.
    DatabaseName
}

impl ShardId {
    /// The config servers, where `admin` and `config` live.
    pub const CONFIG: &'static str = "config";

    /// Are these the config servers?
    #[must_use]
    pub fn is_config(&self) -> bool {
        self.as_str() == Self::CONFIG
    }
}

/// A collection's full name.
#[derive(Clone)]
pub struct Namespace {
    /// `db.collection`; the first dot parts them, for database names have none.
    full: Arc<str>,
    database_length: usize,
}

impl Namespace {
    /// The collection of this name in this database.
    #[must_use]
    pub fn new(database: &str, collection: &str) -> Self {
        let mut full = String::with_capacity(database.len() + 1 + collection.len());
        full.push_str(database);
        full.push('.');
        full.push_str(collection);
        Self { full: full.into(), database_length: database.len() }
    }

    /// From `db.collection`; `None` when one of the two is empty.
    #[must_use]
    pub fn parse(full: &str) -> Option<Self> {
        let (database, collection) = full.split_once('.')?;
        if database.is_empty() || collection.is_empty() {
            return None;
        }
        Some(Self { full: full.into(), database_length: database.len() })
    }

    /// `db.collection`
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// Its database.
    #[must_use]
    pub fn db(&self) -> &str {
        self.full.get(..self.database_length).unwrap_or_default()
    }

    /// Its name inside of the database.
    #[must_use]
    pub fn coll(&self) -> &str {
        self.full.get(self.database_length + 1..).unwrap_or_default()
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.full == other.full
    }
}

impl Eq for Namespace {}

impl PartialOrd for Namespace {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Namespace {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.full.cmp(&other.full)
    }
}

impl std::hash::Hash for Namespace {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // As `str` does it, for look-ups by text.
        self.full.hash(state);
    }
}

impl Borrow<str> for Namespace {
    fn borrow(&self) -> &str {
        &self.full
    }
}

impl std::fmt::Display for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.full)
    }
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", &*self.full)
    }
}
