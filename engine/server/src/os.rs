//! What the standard library does not offer of the operating system; the one place with unsafe
//! code.

#![allow(unsafe_code)]

use glommio::net::TcpListener;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, IntoRawFd};

/// Blocks SIGTERM and SIGINT for the calling thread and all it starts from now on, so that only
/// [`wait_signal`] takes them. Before the first thread.
pub fn block_signals() {
    let set = signals();
    // SAFETY: `set` is initialised, and a null old set is allowed.
    let status = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
    assert_eq!(status, 0, "SIG_BLOCK with a valid set cannot fail");
}

/// Waits for SIGTERM or SIGINT.
pub fn wait_signal() {
    let set = signals();
    let mut signal = 0;
    // SAFETY: `set` is initialised and `signal` is a valid place for the result.
    let status = unsafe { libc::sigwait(&set, &mut signal) };
    assert_eq!(status, 0, "sigwait with a valid set cannot fail");
}

fn signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; the others work on an initialised one.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        set.assume_init()
    }
}

/// The socket as a listener of this thread's executor.
pub fn listener(socket: socket2::Socket) -> TcpListener {
    // SAFETY: the descriptor is open, is a listening TCP socket, and nobody else owns it any more.
    unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) }
}

/// The limit on open files: now, and as high as it may be raised.
pub fn open_files_limit() -> io::Result<(u64, u64)> {
    limit(libc::RLIMIT_NOFILE)
}

/// The limit on locked memory, bytes: now, and as high as it may be raised.
pub fn locked_memory_limit() -> io::Result<(u64, u64)> {
    limit(libc::RLIMIT_MEMLOCK)
}

fn limit(resource: libc::__rlimit_resource_t) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result.
    if unsafe { libc::getrlimit(resource, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Raises the limit on open files as high as it may go; what it is then.
pub fn raise_open_files_limit() -> io::Result<u64> {
    let (now, highest) = open_files_limit()?;
    if now == highest {
        return Ok(now);
    }
    let limit = libc::rlimit { rlim_cur: highest, rlim_max: highest };
    // SAFETY: `limit` is initialised.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 { Ok(now) } else { Ok(highest) }
}

/// Whether the kernel lets this process make an io_uring.
///
/// # Errors
/// ENOSYS: the kernel has none; EPERM: it is forbidden (a container's seccomp profile, or a
/// sysctl).
pub fn probe_io_uring() -> io::Result<()> {
    // `struct io_uring_params` is 120 bytes; zeros ask for nothing special.
    let mut params = [0u64; 15];
    // SAFETY: the pointer is to 120 writable bytes, as the call needs.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2u32, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave this descriptor to us and nobody else has it.
    drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd as i32) });
    Ok(())
}
