//! What the verbs share: exit codes, databases, the layout they were written with.

use super::Target;
use crate::feed::Engine;
use crate::layout::{DATABASES_MAX, Layout, TABLES_MAX};
use crate::sink::{Database, SetupError, url};
use crate::source::SourceError;
use std::sync::Arc;

/// Done.
pub const DONE: u8 = 0;
/// There are differences, or something was refused.
pub const DIFFERENT: u8 = 1;
/// The arguments, or the counts that the data was written with.
pub const USAGE: u8 = 2;
/// Not reached, or failed.
pub const FAILED: u8 = 3;
/// Another writer took over.
pub const FENCED: u8 = 4;
/// A person must look.
pub const ALARM: u8 = 5;

/// Why a verb was not carried out.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// One plain sentence.
    pub message: String,
}

impl Failure {
    /// Wrong arguments.
    pub fn usage(message: impl ToString) -> Self {
        Self { code: USAGE, message: message.to_string() }
    }

    /// Something failed.
    pub fn failed(error: impl ToString) -> Self {
        Self { code: FAILED, message: error.to_string() }
    }

    /// A database cannot be used.
    pub fn setup(error: SetupError) -> Self {
        let code = if matches!(error, SetupError::Sink { .. }) { FAILED } else { USAGE };
        Self { code, message: error.to_string() }
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::setup(error)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::failed(error)
    }
}

/// The databases of the arguments.
pub fn databases(target: &Target) -> Result<Vec<Arc<dyn Database>>, Failure> {
    if target.databases.len() > DATABASES_MAX {
        return Err(Failure::usage(format!("at most {DATABASES_MAX} databases")));
    }
    if target.tables.is_some_and(|tables| !(1..=TABLES_MAX).contains(&tables)) {
        return Err(Failure::usage(format!("--tables must be 1..={TABLES_MAX}")));
    }
    let urls = &target.databases;
    if let Some((_, twice)) = urls.iter().enumerate().find(|(at, url)| urls[..*at].contains(url)) {
        return Err(Failure::usage(format!("--db {twice} is given twice")));
    }
    let replicas = &target.replicas;
    if !replicas.is_empty() && replicas.len() != urls.len() {
        return Err(Failure::usage("--replica must be given as often as --db, in the same order"));
    }
    let replica = |at: usize| replicas.get(at).map(String::as_str);
    let urls = urls.iter().enumerate();
    urls.map(|(at, url)| url::database(url, replica(at)).map_err(Failure::setup)).collect()
}

/// The engine of the arguments.
pub fn engine(target: &Target) -> Result<Engine, Failure> {
    Engine::new(&target.server, &target.token, &target.consumer).map_err(Failure::usage)
}

/// How many tables: as asked, else as the data was written, else 1.
///
/// # Errors
/// The first database cannot be read.
pub fn tables(target: &Target, databases: &[Arc<dyn Database>]) -> Result<u16, SetupError> {
    let Some(first) = databases.first().filter(|_| target.tables.is_none()) else {
        return Ok(target.tables.unwrap_or(1));
    };
    let found = first.layout()?;
    Ok(found.map_or(1, |(layout, _)| layout.tables))
}

/// The layout of databases that must have been written before; nothing is made.
pub fn written(target: &Target, databases: &[Arc<dyn Database>]) -> Result<Layout, Failure> {
    let mut layout: Option<Layout> = None;
    for (index, database) in databases.iter().enumerate() {
        let found = database.layout().map_err(Failure::setup)?;
        let Some((found, found_index)) = found else {
            return Err(Failure::setup(SetupError::Empty(database.name())));
        };
        let asked = Layout {
            databases: databases.len() as u16,
            tables: target.tables.unwrap_or(found.tables),
            partitions: layout.unwrap_or(found).partitions,
        };
        if (asked, index as u16) != (found, found_index) {
            let name = database.name();
            let error = SetupError::layout(name, &found, found_index, &asked, index as u16);
            return Err(Failure::setup(error));
        }
        layout = Some(found);
    }
    layout.ok_or_else(|| Failure::usage("--db is missing"))
}
