//! Where the credentials of a user are: outside any project.

use crate::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

/// The variable that names the folder instead.
pub const VARIABLE: &str = "COUNTERFOIL_CREDENTIALS";

/// The folder, by an environment: what [`VARIABLE`] names, else the platform's place for a user's data.
///
/// # Errors
/// [`Error::NoPlace`]: the environment names none.
pub fn directory(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
    let named = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = named(VARIABLE) {
        return std::path::absolute(own).map_err(|_| Error::NoPlace);
    }
    // A relative path is to be ignored (XDG Base Directory Specification, Environment variables).
    let data = match named("XDG_DATA_HOME").filter(|p| p.is_absolute()) {
        Some(data) => data,
        None => named("HOME").filter(|p| p.is_absolute()).ok_or(Error::NoPlace)?.join(DATA),
    };
    Ok(data.join("counterfoil").join("credentials"))
}

#[cfg(target_os = "macos")]
const DATA: &str = "Library/Application Support";
#[cfg(not(target_os = "macos"))]
const DATA: &str = ".local/share";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(env: &[(&str, &str)]) -> Result<PathBuf, Error> {
        directory(|name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()))
    }

    #[test]
    fn the_variable_wins_then_the_platforms_place() {
        assert_eq!(of(&[(VARIABLE, "/x"), ("HOME", "/h")]).unwrap(), PathBuf::from("/x"));
        assert!(of(&[(VARIABLE, "x")]).unwrap().is_absolute());
        let of_data = of(&[(VARIABLE, ""), ("XDG_DATA_HOME", "/d"), ("HOME", "/h")]).unwrap();
        assert_eq!(of_data, PathBuf::from("/d/counterfoil/credentials"));
        let of_home = of(&[("XDG_DATA_HOME", "relative"), ("HOME", "/h")]).unwrap();
        assert_eq!(of_home, PathBuf::from("/h").join(DATA).join("counterfoil/credentials"));
        assert_eq!(of(&[]), Err(Error::NoPlace));
        assert_eq!(of(&[("HOME", "relative")]), Err(Error::NoPlace));
    }
}
