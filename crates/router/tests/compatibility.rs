//! `docs/compatibility.md` is made from the command table: this test fails when they differ.
//!
//! `UPDATE_DOCS=1 cargo test -p router --test compatibility` writes the page anew.

use std::path::Path;

use router::command::{Access, Command, Status, table};
use router::read::reference::{OPTIONS, OptionRow, STAGES, StageRow};

const HEAD: &str = "# Commands

Made from the command table (`crates/router/src/command/table/`) by `crates/router/tests/compatibility.rs`; do not edit.

The reference is mongos 6.0. A command that is not in this table is answered with `CommandNotFound` (59), as mongos does.
\"refused\" means `CommandNotSupported` (115) with the command's name: never ignored, never half done.

| command | aliases | does | answered by | only on admin | in transactions | API v1 | status |
|---|---|---|---|---|---|---|---|
";

fn row(out: &mut String, command: &Command) {
    let yes = |flag: bool| if flag { "yes" } else { "" };
    let access = match command.access {
        Access::Read => "reads",
        Access::Write => "writes",
        Access::Neutral => "",
    };
    let status = match command.status {
        Status::Works if command.test_only => "works with `enableTestCommands`".to_owned(),
        Status::Works => "works".to_owned(),
        Status::Partly(note) => format!("works, but for: {note}"),
        Status::Refused(why) => format!("refused: {why}"),
    };
    out.push_str(&format!(
        "| {} | {} | {access} | {} | {} | {} | {} | {status} |\n",
        command.name,
        command.aliases.join(", "),
        command.runs_on.describe(),
        yes(command.admin_only),
        yes(command.in_transaction),
        yes(command.api_v1),
    ));
}

const STAGES_HEAD: &str = "
## Stages of pipelines

A pipeline that concerns one shard goes there whole. For several shards it is cut (`explain` shows where); from
`crates/router/src/read/reference.rs`.

| stage | runs on | |
|---|---|---|
";

const OPTIONS_HEAD: &str = "
## Options of queries

| option | of | |
|---|---|---|
";

fn stage_row(out: &mut String, row: &StageRow) {
    out.push_str(&format!("| {} | {} | {} |\n", row.name, row.runs.describe(), row.note));
}

fn option_row(out: &mut String, row: &OptionRow) {
    out.push_str(&format!("| {} | {} | {} |\n", row.name, row.commands, row.does));
}

#[test]
fn the_page_says_what_the_table_says() {
    let mut rows: Vec<&Command> = table::rows().collect();
    rows.sort_by_key(|command| command.name.to_lowercase());
    let mut page = HEAD.to_owned();
    rows.into_iter().for_each(|command| row(&mut page, command));
    page.push_str(STAGES_HEAD);
    STAGES.iter().for_each(|stage| stage_row(&mut page, stage));
    page.push_str(OPTIONS_HEAD);
    OPTIONS.iter().for_each(|option| option_row(&mut page, option));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/compatibility.md is out of date: run UPDATE_DOCS=1 cargo test -p router --test compatibility"
    );
}
