//! What is wrong with a configuration: every fault at once, each with its place and what to do.

use std::fmt;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// In the file: line and column, from 1.
    Line(usize, usize),
    /// In an environment variable.
    Variable(String),
    /// Nowhere: a default, or the file as a whole.
    Nowhere,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as the caller named it.
    pub file: String,
    /// Where in it, or which environment variable.
    pub at: At,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Line(line, column) => write!(f, "{}:{line}:{column}: {}", self.file, self.message),
            At::Variable(name) => write!(f, "environment variable {name}: {}", self.message),
            At::Nowhere => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

/// Everything that is wrong with a configuration. Nothing was started or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The faults, in the order of the file.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// A configuration with one fault.
    #[must_use]
    pub fn one(file: impl Into<String>, at: At, message: impl Into<String>) -> ConfigError {
        ConfigError { problems: vec![Problem { file: file.into(), at, message: message.into() }] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{p}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
