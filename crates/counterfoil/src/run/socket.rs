//! Unix sockets in the ledger's directory: this user's only (0600, in a directory that is 0700), under long paths too.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};

/// The longest path that `sockaddr_un` takes everywhere, with its final zero (unix(7): 108 on Linux, 104 on macOS).
const LONGEST: usize = 103;

/// A path under which a socket can be named, and what keeps that path valid.
pub(super) struct Place {
    path: PathBuf,
    _dir: Option<std::fs::File>,
}

impl Place {
    /// Takes the socket's name away, so that nobody comes any more.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn place(dir: &Path, name: &str) -> std::io::Result<Place> {
    let path = dir.join(name);
    if path.as_os_str().len() <= LONGEST {
        return Ok(Place { path, _dir: None });
    }
    // A long path goes by way of an open directory.
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        let open = std::fs::File::open(dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
        Ok(Place { path, _dir: Some(open) })
    }
    #[cfg(not(target_os = "linux"))]
    Err(std::io::Error::new(
        std::io::ErrorKind::InvalidInput,
        "the directory's path is too long for a socket; choose a shorter one",
    ))
}

/// Listens. The caller holds the ledger's lock, so a socket that is there already is a dead process's.
///
/// # Errors
/// The socket can't be made.
pub(super) fn listen(dir: &Path, name: &str) -> std::io::Result<(UnixListener, Place)> {
    let place = place(dir, name)?;
    match std::fs::remove_file(&place.path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let listener = UnixListener::bind(&place.path)?;
    std::fs::set_permissions(&place.path, std::fs::Permissions::from_mode(0o600))?;
    Ok((listener, place))
}

/// Connects.
///
/// # Errors
/// There is no socket, or nobody behind it.
pub(crate) async fn connect(dir: &Path, name: &str) -> std::io::Result<UnixStream> {
    let place = place(dir, name)?;
    UnixStream::connect(&place.path).await
}
