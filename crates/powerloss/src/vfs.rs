//! The shim: an SQLite VFS over the system's own, which writes every change down before it passes it on.
//!
//! All that is unsafe is here. What SQLite promises about its calls, and what each block relies on:
//!
//! - the VFS that `sqlite3_vfs_find` gives lives as long as the process, and so does ours, which is never freed;
//! - a file's memory (`szOsFile` bytes, aligned for any type) is SQLite's, is ours from `xOpen` to `xClose`, and its
//!   calls come from one thread at a time;
//! - names are zero-terminated and live as long as their file; buffers have the length that is given with them.
//!
//! Layout of an open file: a [`Shim`], then the real file of the VFS below.

use crate::{Event, Failure, Name, Recorder};
use rusqlite::ffi;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

/// What our VFS has at `pAppData`.
struct Below {
    vfs: *mut ffi::sqlite3_vfs,
    recorder: Arc<Recorder>,
}

/// The head of an open file.
#[repr(C)]
struct Shim {
    /// What SQLite sees.
    base: ffi::sqlite3_file,
    below: *const Below,
    /// A boxed name; null for files that are not recorded.
    name: *mut Name,
    /// Its next sync syncs its directory too.
    syncs_dir: bool,
}

const LOGS: c_int = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;

/// Makes the shim known to SQLite under `name`, for as long as the process lives.
///
/// # Errors
/// SQLite has no file system of its own, or the name has a zero byte.
pub fn register(name: &str, recorder: Arc<Recorder>) -> Result<(), String> {
    let zname = CString::new(name).map_err(|_| "a zero byte in the name".to_owned())?;
    // SAFETY: a null name asks for the default; it is initialised if need be and never freed.
    let below = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    if below.is_null() {
        return Err("SQLite has no file system".into());
    }
    // SAFETY: it is not null, and its fields do not change once it is registered.
    let (size, longest) = unsafe { ((*below).szOsFile, (*below).mxPathname) };
    let head = c_int::try_from(size_of::<Shim>()).map_err(|_| "too large".to_owned())?;
    let vfs = ffi::sqlite3_vfs {
        // Version 1: no 64-bit clock and no system calls, which nobody asks for.
        iVersion: 1,
        szOsFile: head + size,
        mxPathname: longest,
        pNext: std::ptr::null_mut(),
        zName: zname.into_raw(),
        pAppData: Box::into_raw(Box::new(Below { vfs: below, recorder })).cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    };
    // SAFETY: what is handed over is never freed or changed by us.
    match unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0) } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(format!("SQLite error {code}")),
    }
}

/// Our own data of the VFS that SQLite calls.
unsafe fn below<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a Below {
    // SAFETY: `register` put it there, and it is never freed.
    unsafe { &*(*vfs).pAppData.cast::<Below>() }
}

/// The real file behind one of ours.
unsafe fn real(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: `szOsFile` makes room for it right behind the head, whose size is a multiple of a pointer's.
    unsafe { file.cast::<Shim>().add(1).cast() }
}

/// Recorder and name of a file, if it is recorded.
unsafe fn recorded<'a>(file: *mut ffi::sqlite3_file) -> Option<(&'a Recorder, &'a Name)> {
    // SAFETY: `open` filled the head in; the name is ours until `close`.
    unsafe {
        let shim = &*file.cast::<Shim>();
        shim.name.as_ref().map(|name| (&*(*shim.below).recorder, name))
    }
}

unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite's names end with a zero and outlive the call.
    Some(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())))
}

/// Calls a function of the real VFS. Its table is complete in what SQLite itself calls.
macro_rules! down_vfs {
    ($vfs:expr, $function:ident $(, $arg:expr)*) => {{
        let vfs = below($vfs).vfs;
        match (*vfs).$function {
            Some(f) => f(vfs $(, $arg)*),
            None => ffi::SQLITE_ERROR,
        }
    }};
}

/// Calls a function of the real file.
macro_rules! down {
    ($file:expr, $function:ident $(, $arg:expr)*) => {{
        let file = real($file);
        match (*(*file).pMethods).$function {
            Some(f) => f(file $(, $arg)*),
            None => ffi::SQLITE_IOERR,
        }
    }};
}

/// A function that only passes on. SAFETY, for all of them: the arguments are SQLite's own, unchanged, for the same
/// function of the file or file system below.
macro_rules! passes {
    (vfs: $($name:ident = $function:ident($($arg:ident: $kind:ty),*);)*) => {$(
        unsafe extern "C" fn $name(vfs: *mut ffi::sqlite3_vfs $(, $arg: $kind)*) -> c_int {
            unsafe { down_vfs!(vfs, $function $(, $arg)*) }
        }
    )*};
    (file: $($name:ident = $function:ident($($arg:ident: $kind:ty),*);)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $arg: $kind)*) -> c_int {
            unsafe { down!(file, $function $(, $arg)*) }
        }
    )*};
}

passes! { vfs:
    access = xAccess(name: *const c_char, flags: c_int, out: *mut c_int);
    full_pathname = xFullPathname(name: *const c_char, len: c_int, out: *mut c_char);
    randomness = xRandomness(len: c_int, out: *mut c_char);
    sleep = xSleep(us: c_int);
    current_time = xCurrentTime(out: *mut f64);
    last_error = xGetLastError(len: c_int, out: *mut c_char);
}

passes! { file:
    read = xRead(to: *mut c_void, len: c_int, at: i64);
    file_size = xFileSize(out: *mut i64);
    lock = xLock(level: c_int);
    unlock = xUnlock(level: c_int);
    check_reserved_lock = xCheckReservedLock(out: *mut c_int);
    file_control = xFileControl(op: c_int, arg: *mut c_void);
    sector_size = xSectorSize();
    device_characteristics = xDeviceCharacteristics();
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void);
    shm_lock = xShmLock(from: c_int, n: c_int, flags: c_int);
    shm_unmap = xShmUnmap(delete: c_int);
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as for all that passes on.
    unsafe {
        let file = real(file);
        if let Some(f) = (*(*file).pMethods).xShmBarrier {
            f(file);
        }
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: `file` has room for the head and the real file; the head's methods stay null, which says that there is
    // nothing to close, until the real file is open.
    unsafe {
        let ours = below(vfs);
        let path = path(name);
        let name_of = path.and_then(|p| ours.recorder.name(p));
        let fresh = flags & ffi::SQLITE_OPEN_CREATE != 0 && path.is_some_and(|p| !p.exists());
        file.cast::<Shim>().write(Shim {
            base: ffi::sqlite3_file { pMethods: std::ptr::null() },
            below: ours,
            name: std::ptr::null_mut(),
            // So does SQLite's file system for Unix with what it opens as a log or journal that may be new.
            syncs_dir: flags & ffi::SQLITE_OPEN_CREATE != 0 && flags & LOGS != 0,
        });
        let rc = down_vfs!(vfs, xOpen, name, real(file), flags, out);
        if rc != ffi::SQLITE_OK {
            return rc;
        }
        if let Some(name) = name_of {
            if fresh {
                ours.recorder.push(Event::Create(name.clone()));
            }
            (*file.cast::<Shim>()).name = Box::into_raw(Box::new(name));
        }
        (*file).pMethods = &raw const METHODS;
        rc
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the name was boxed by `open`, and SQLite closes a file once.
    unsafe {
        let rc = down!(file, xClose);
        let shim = &mut *file.cast::<Shim>();
        if !shim.name.is_null() {
            drop(Box::from_raw(std::mem::replace(&mut shim.name, std::ptr::null_mut())));
        }
        rc
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: as for all that passes on.
    unsafe {
        let rc = down_vfs!(vfs, xDelete, name, sync_dir);
        let ours = below(vfs);
        if rc == ffi::SQLITE_OK
            && let Some(file) = path(name).and_then(|p| ours.recorder.name(p))
        {
            ours.recorder.push(Event::Delete { file, durable: sync_dir != 0 });
        }
        rc
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: `from` has `len` bytes; else as for all that passes on.
    unsafe {
        let mut len = len;
        let mut answer = None;
        if let Some((recorder, name)) = recorded(file) {
            match recorder.fails(false) {
                None => {}
                Some(Failure::FullHalf) => {
                    len /= 2;
                    answer = Some(ffi::SQLITE_FULL);
                }
                Some(Failure::Full) => return ffi::SQLITE_FULL,
                Some(Failure::Write | Failure::Sync) => return ffi::SQLITE_IOERR_WRITE,
            }
            let bytes = std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(len).unwrap_or(0));
            let at = u64::try_from(at).unwrap_or(0);
            recorder.push(Event::Write { file: name.clone(), at, data: bytes.to_vec() });
        }
        let rc = down!(file, xWrite, from, len, at);
        answer.unwrap_or(rc)
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: as for all that passes on.
    unsafe {
        let rc = down!(file, xTruncate, len);
        if rc == ffi::SQLITE_OK
            && let Some((recorder, name)) = recorded(file)
        {
            recorder.push(Event::Resize { file: name.clone(), len: u64::try_from(len).unwrap_or(0) });
        }
        rc
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: as for all that passes on.
    unsafe {
        let Some((recorder, name)) = recorded(file) else { return down!(file, xSync, flags) };
        if recorder.fails(true).is_some() {
            recorder.push(Event::Sync { file: name.clone(), ok: false });
            return ffi::SQLITE_IOERR_FSYNC;
        }
        let rc = down!(file, xSync, flags);
        recorder.push(Event::Sync { file: name.clone(), ok: rc == ffi::SQLITE_OK });
        let shim = &mut *file.cast::<Shim>();
        if rc == ffi::SQLITE_OK && std::mem::take(&mut shim.syncs_dir) {
            recorder.push(Event::SyncDir);
        }
        rc
    }
}

/// Version 2: shared memory for the log, but no memory-mapped reads, which the store does not use.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
