//! `docs/compatibility.md` is made from the command table: this test fails when they differ.
//!
//! `UPDATE_DOCS=1 cargo test -p router --test compatibility` writes the page anew.

use std::path::Path;

use router::command::{Access, Command, Status, table};
use router::read::reference::{DIFFERENCES, OPTIONS, OptionRow, STAGES, StageRow};

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

const WRITES: &str = "
## Replies of writes

`tests/write_replies.rs` and `tests/time_series.rs` compare some 250 inserts, updates and deletes field by field with the
server's own routing code, `findAndModify` with a server without routing. What differs on purpose:

| where | how | why |
|---|---|---|
| a statement without the shard key | the same code and text, and behind it the shard key and the fields that the filter lacks | says what to add |
| a filter that no server can parse, and that cannot be targeted either | refused for its targeting, not for its syntax | filters are parsed by shards only |
| `writeConcernError` of one shard | `errInfo` as the shard sent it | mongos makes it a part of the text and sends an empty one |
| a wrong number of `stmtIds` | the text does not repeat the whole command | it may have 100,000 statements |
| a broadcast of which one shard is stale while another one refuses it | the refusal | mongos mixes both into `MultipleErrorsOccurred` |
| a statement of a transaction on a shard that got chunks since the time that it reads at | `MigrationConflict`, to be run again | that of 6.0.5 finds nothing and says so ([`reliability.md`](reliability.md)) |
";

const OPTIONS_HEAD: &str = "
## Options of queries

| option | of | |
|---|---|---|
";

const DIFFERENCES_HEAD: &str = "
## Where answers differ from mongos 6.0.5

What comparisons with the server's own routing code left over (`tests/oracle.rs`); texts alone are not listed.

| what | here, and why |
|---|---|
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
    page.push_str(DIFFERENCES_HEAD);
    DIFFERENCES.iter().for_each(|(what, why)| page.push_str(&format!("| {what} | {why} |\n")));
    page.push_str(WRITES);
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
