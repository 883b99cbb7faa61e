//! getParameter, setParameter

use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Not built yet.
pub async fn get_parameter(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn set_parameter(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// The server parameters of this router.
#[derive(Debug, Default)]
pub struct Parameters {
    test_commands: bool,
}

impl Parameters {
    /// From `--setParameter name=value` pairs; an unknown name or a bad value is an error that names it.
    pub fn from_options(options: &[(String, String)]) -> Result<Self, String> {
        let mut parameters = Self::default();
        for (name, value) in options {
            match name.as_str() {
                "enableTestCommands" => parameters.test_commands = matches!(value.as_str(), "1" | "true"),
                _ => return Err(format!("Unknown --setParameter '{name}'")),
            }
        }
        Ok(parameters)
    }

    /// `enableTestCommands`
    #[must_use]
    pub const fn test_commands(&self) -> bool {
        self.test_commands
    }
}
