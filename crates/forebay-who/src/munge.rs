//! Credentials of MUNGE: `libmunge` is loaded when the first one is wanted, so nothing here needs it to be
//! built or to run where nobody asks for it.
//!
//! A credential carries the user and group of the process that made it and a payload that only those can
//! read who run `munged` with the same key, and of them only the user for whom it was made. `munged`
//! refuses one that is too old, and one that was decoded before on the same host.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// `munge_opt_t`: how the payload is encrypted; seconds that a credential lives; the socket of `munged`; who
/// alone may decode it.
const OPT_CIPHER: c_int = 0;
const OPT_TTL: c_int = 4;
const OPT_SOCKET: c_int = 8;
const OPT_UID_RESTRICTION: c_int = 9;
/// `munge_cipher_t`: AES with 128 bits, whatever the daemon's default is.
const CIPHER: c_int = 4;
/// `munge_err_t` of credentials that are too old, from the future, or decoded before.
const EXPIRED: c_int = 15;
const REWOUND: c_int = 16;
const REPLAYED: c_int = 17;
/// As long as it may take from one host to another.
const LIFE: c_int = 60;
/// A payload or credential longer than this is none of ours.
const LONGEST: usize = 16 << 10;

/// Why a credential was not made, or not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MungeError {
    /// There is no MUNGE on this machine.
    #[error("MUNGE is not installed on this host (libmunge.so.2: {0}): install it, or use a secret file")]
    Missing(String),
    /// It was decoded before.
    #[error("the MUNGE credential was used before: each is good for one time")]
    Replayed,
    /// It is too old, or the clocks differ.
    #[error("the MUNGE credential is too old, or from the future: are the hosts' clocks alike?")]
    Expired,
    /// What MUNGE says.
    #[error("MUNGE: {0}")]
    Failed(String),
}

/// Who made a credential, and what it carries.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// What was said in confidence.
    pub payload: Vec<u8>,
}

type Context = *mut c_void;

/// The functions of the library that are used.
struct Functions {
    create: unsafe extern "C" fn() -> Context,
    destroy: unsafe extern "C" fn(Context),
    set: unsafe extern "C" fn(Context, c_int, ...) -> c_int,
    encode: unsafe extern "C" fn(*mut *mut c_char, Context, *const c_void, c_int) -> c_int,
    decode: unsafe extern "C" fn(
        *const c_char,
        Context,
        *mut *mut c_void,
        *mut c_int,
        *mut libc::uid_t,
        *mut libc::gid_t,
    ) -> c_int,
    text: unsafe extern "C" fn(c_int) -> *const c_char,
    _library: Library,
}

fn functions() -> Result<&'static Functions, MungeError> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let load = || -> Result<Functions, libloading::Error> {
        // SAFETY: libmunge has no initialisers that ask anything of us, and the symbols have these types in
        // every version of its only interface, `libmunge.so.2` (see munge.h).
        unsafe {
            let library = Library::new("libmunge.so.2")?;
            Ok(Functions {
                create: *library.get(b"munge_ctx_create\0")?,
                destroy: *library.get(b"munge_ctx_destroy\0")?,
                set: *library.get(b"munge_ctx_set\0")?,
                encode: *library.get(b"munge_encode\0")?,
                decode: *library.get(b"munge_decode\0")?,
                text: *library.get(b"munge_strerror\0")?,
                _library: library,
            })
        }
    };
    let loaded = LOADED.get_or_init(|| load().map_err(|e| e.to_string()));
    loaded.as_ref().map_err(|e| MungeError::Missing(e.clone()))
}

/// MUNGE as this machine has it.
#[derive(Clone, Debug, Default)]
pub struct Munge {
    /// Where `munged` listens, if not in the usual place.
    socket: Option<PathBuf>,
}

/// A context of the library, until dropped.
struct Ctx(&'static Functions, Context);

impl Drop for Ctx {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and destroyed once.
        unsafe { (self.0.destroy)(self.1) };
    }
}

impl Ctx {
    fn failed(&self, code: c_int) -> MungeError {
        match code {
            REPLAYED => MungeError::Replayed,
            EXPIRED | REWOUND => MungeError::Expired,
            _ => {
                // SAFETY: `munge_strerror` gives a constant string for every number.
                let text = unsafe { CStr::from_ptr((self.0.text)(code)) };
                MungeError::Failed(text.to_string_lossy().into_owned())
            }
        }
    }

    fn done(&self, code: c_int) -> Result<(), MungeError> {
        if code == 0 { Ok(()) } else { Err(self.failed(code)) }
    }
}

impl Munge {
    /// With `munged` at this socket; in the usual place without one, or where `FOREBAY_MUNGE_SOCKET` says.
    pub fn new(socket: Option<&Path>) -> Munge {
        let told = || std::env::var_os("FOREBAY_MUNGE_SOCKET").map(PathBuf::from);
        Munge { socket: socket.map(Path::to_owned).or_else(told) }
    }

    fn context(&self) -> Result<Ctx, MungeError> {
        let functions = functions()?;
        // SAFETY: takes nothing; null is checked for.
        let context = unsafe { (functions.create)() };
        if context.is_null() {
            return Err(MungeError::Failed("out of memory".into()));
        }
        let ctx = Ctx(functions, context);
        if let Some(socket) = &self.socket {
            let name = CString::new(socket.as_os_str().as_encoded_bytes())
                .map_err(|_| MungeError::Failed("the socket's name is none".into()))?;
            // SAFETY: this option takes a C string, which the library copies.
            ctx.done(unsafe { (functions.set)(context, OPT_SOCKET, name.as_ptr()) })?;
        }
        Ok(ctx)
    }

    /// A credential of this process that only `reader` can decode, on any host of the cluster.
    pub fn encode(&self, payload: &[u8], reader: u32) -> Result<String, MungeError> {
        let ctx = self.context()?;
        let len = c_int::try_from(payload.len()).ok().filter(|_| payload.len() <= LONGEST);
        let len = len.ok_or_else(|| MungeError::Failed("too much to say".into()))?;
        let mut made = std::ptr::null_mut();
        // SAFETY: these options take a number; the payload is as long as told; what comes back is a C string
        // that is ours to free.
        unsafe {
            ctx.done((ctx.0.set)(ctx.1, OPT_UID_RESTRICTION, reader as libc::uid_t))?;
            ctx.done((ctx.0.set)(ctx.1, OPT_TTL, LIFE))?;
            ctx.done((ctx.0.set)(ctx.1, OPT_CIPHER, CIPHER))?;
            ctx.done((ctx.0.encode)(&raw mut made, ctx.1, payload.as_ptr().cast(), len))?;
            let text = CStr::from_ptr(made).to_string_lossy().into_owned();
            libc::free(made.cast());
            Ok(text)
        }
    }

    /// Who made a credential, if it is genuine, young, made for this user, and was not seen before.
    pub fn decode(&self, credential: &str) -> Result<Claim, MungeError> {
        let ctx = self.context()?;
        let text = CString::new(credential).ok().filter(|_| credential.len() <= LONGEST);
        let text = text.ok_or_else(|| MungeError::Failed("that is no credential".into()))?;
        let (mut data, mut len, mut uid, mut gid) = (std::ptr::null_mut(), 0, u32::MAX, u32::MAX);
        // SAFETY: every pointer is to a live local. The payload is ours to free, also after an error: the
        // library gives it for replayed and expired ones, too.
        unsafe {
            let code =
                (ctx.0.decode)(text.as_ptr(), ctx.1, &raw mut data, &raw mut len, &raw mut uid, &raw mut gid);
            let mut payload = Vec::new();
            if !data.is_null() {
                if let Ok(len) = usize::try_from(len) {
                    payload = std::slice::from_raw_parts(data.cast::<u8>(), len).to_vec();
                }
                libc::free(data);
            }
            ctx.done(code)?;
            if uid == u32::MAX || gid == u32::MAX {
                return Err(MungeError::Failed("it names nobody".into()));
            }
            Ok(Claim { uid, gid, payload })
        }
    }
}
