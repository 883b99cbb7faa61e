//! All commands, a file a family.

mod config;
mod ddl;
mod diagnostics;
mod handshake;
mod process;
mod read;
mod session;
mod sharding;
mod users;
mod write;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Command;

/// The rows, family by family.
pub fn rows() -> impl Iterator<Item = &'static Command> {
    [
        handshake::ROWS,
        read::ROWS,
        write::ROWS,
        session::ROWS,
        ddl::ROWS,
        sharding::ROWS,
        config::ROWS,
        diagnostics::ROWS,
        process::ROWS,
        users::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// Names and aliases, case-sensitive: `FIND` does not exist. With the number of the row.
static BY_NAME: LazyLock<HashMap<&'static str, (usize, &'static Command), foldhash::fast::RandomState>> =
    LazyLock::new(|| {
        rows()
            .enumerate()
            .flat_map(|(number, row)| {
                let names = std::iter::once(row.name).chain(row.aliases.iter().copied());
                names.map(move |name| (name, (number, row)))
            })
            .collect()
    });

/// The row of this name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static Command> {
    find_numbered(name).map(|(_, row)| row)
}

/// As [`find`], with the row's place in [`rows`].
#[must_use]
pub fn find_numbered(name: &str) -> Option<(usize, &'static Command)> {
    BY_NAME.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice() {
        let names: usize = rows().map(|row| 1 + row.aliases.len()).sum();
        assert_eq!(names, BY_NAME.len());
    }
}
