//! Connects devices of ranks: by copy engines if all share a host and reach each other's memory, else by NCCL.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;

use super::agreement::AllGather;
use super::copies::{Copies, PeerCopy};
use super::flags::Registered;
use super::nccl::{self, Nccl};
use crate::driver::{BoundExchange, DriverError};

/// Forces a backend for exchanges.
const VARIABLE: &str = "PRECAST_EXCHANGE";

/// A backend that the environment requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requested {
    Copies,
    Nccl,
}

impl Requested {
    /// # Errors
    /// [`DriverError::Environment`] if the value is unknown.
    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, DriverError> {
        let Some(value) = variable(VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
        match value.to_str() {
            Some("copies") => Ok(Some(Self::Copies)),
            Some("nccl") => Ok(Some(Self::Nccl)),
            _ => Err(DriverError::Environment {
                name: VARIABLE,
                value: value.to_string_lossy().into_owned(),
                effect: "it names no exchange backend",
                remedy: "set it to copies or nccl, or unset it".to_owned(),
            }),
        }
    }
}

enum Backend {
    Copies(Copies),
    Nccl(Nccl),
}

/// An exchange prepared for its backend.
pub(in crate::cuda) enum Prepared {
    Copies(Vec<PeerCopy>),
    Nccl(BoundExchange),
}

/// Connections of this rank to the others.
pub(in crate::cuda) struct Ranks {
    rank: u32,
    count: u32,
    requested: Option<Requested>,
    all_gather: AllGather,
    backend: Option<Backend>,
    /// Description of the backend, and for NCCL the reason that copies cannot be used.
    about: String,
    abort: Abort,
}

fn failed(label: &str, reason: impl Into<String>) -> DriverError {
    DriverError::Exchange { label: label.to_owned(), reason: reason.into() }
}

/// Adds to an NCCL failure the reason for using NCCL and the memory left for it.
fn explained(error: DriverError, why: &str, free_bytes: u64) -> DriverError {
    match error {
        DriverError::Exchange { label, reason } => {
            let free = free_bytes >> 20;
            failed(
                &label,
                format!("{reason}. {free} MiB of device memory are free. Copy engines are not used because {why}"),
            )
        }
        error => error,
    }
}

impl Ranks {
    /// # Errors
    /// [`DriverError::Environment`] if the requested backend is unknown.
    pub fn new(rank: u32, count: u32, all_gather: AllGather) -> Result<Self, DriverError> {
        let requested = Requested::of(|name| std::env::var_os(name))?;
        let abort = Abort(Arc::new(Shared { rank, ..Shared::default() }));
        Ok(Self { rank, count, requested, all_gather, backend: None, about: String::new(), abort })
    }

    /// Returns a handle that ends exchanges waiting for a lost rank.
    pub fn abort(&self) -> Abort {
        self.abort.clone()
    }

    /// Connects to the others by the first backend available to all. `memory` lists all of this rank's allocations as
    /// addresses and bytes; `free_bytes` of the device are left.
    ///
    /// # Errors
    /// [`DriverError::Exchange`] if no backend connects all ranks.
    pub fn connect(&mut self, memory: &[(u64, u64)], free_bytes: u64) -> Result<(), DriverError> {
        let ranks = |reason: String| failed("ranks", reason);
        let wanted = match self.requested {
            Some(Requested::Nccl) => Err(format!("{VARIABLE} is nccl")),
            _ => Ok(()),
        };
        let copies = Copies::open((self.rank, self.count), memory, wanted, &mut self.all_gather).map_err(ranks)?;
        let why = match copies {
            Ok(copies) => {
                let _ = self.abort.0.flags.set(Arc::clone(copies.flags()));
                "by copy engines".clone_into(&mut self.about);
                self.backend = Some(Backend::Copies(copies));
                return Ok(());
            }
            Err(why) if self.requested == Some(Requested::Copies) => {
                return Err(ranks(format!("{VARIABLE}=copies, but copies cannot be used: {why}")));
            }
            Err(why) => why,
        };
        let nccl = self.connect_nccl().map_err(|error| explained(error, &why, free_bytes))?;
        let _ = self.abort.0.nccl.set(nccl.abort());
        self.about = format!("by NCCL {}, since {why}", nccl::version()?);
        self.backend = Some(Backend::Nccl(nccl));
        Ok(())
    }

    fn connect_nccl(&mut self) -> Result<Nccl, DriverError> {
        let own = if self.rank == 0 { nccl::Id::new()?.bytes() } else { Vec::new() };
        let ids = (self.all_gather)(&own).map_err(|reason| failed("ranks", reason))?;
        Nccl::connect(self.rank, self.count, &nccl::Id::of(&ids[0])?)
    }

    /// Describes the backend, for people.
    pub fn about(&self) -> String {
        format!("{}, {}", self.count, self.about)
    }

    /// True if other ranks open this one's memory.
    pub fn shares_memory(&self) -> bool {
        matches!(self.backend, Some(Backend::Copies(_)))
    }

    fn backend(&self) -> &Backend {
        self.backend.as_ref().expect("ranks are connected before anything is prepared")
    }

    /// # Errors
    /// [`DriverError::Exchange`] if the ranks' sends and receives do not match.
    pub fn prepare(&mut self, label: &str, exchange: &BoundExchange) -> Result<Prepared, DriverError> {
        match self.backend.as_ref().expect("ranks are connected before anything is prepared") {
            Backend::Copies(copies) => {
                let prepared = copies.prepare(exchange, &mut self.all_gather);
                Ok(Prepared::Copies(prepared.map_err(|reason| failed(label, reason))?))
            }
            Backend::Nccl(_) => Ok(Prepared::Nccl(exchange.clone())),
        }
    }

    /// Enqueues an exchange on a stream.
    ///
    /// # Errors
    /// [`DriverError`] of the backend, or of a failed rank.
    pub fn exchange(&self, label: &str, prepared: &Prepared, stream: sys::CUstream) -> Result<(), DriverError> {
        self.abort.check(label)?;
        match (self.backend(), prepared) {
            (Backend::Copies(copies), Prepared::Copies(prepared)) => copies.exchange(label, prepared, stream),
            (Backend::Nccl(nccl), Prepared::Nccl(exchange)) => nccl.exchange(label, exchange, stream),
            _ => unreachable!("an exchange is prepared for the backend that there is"),
        }
    }
}

/// Ends waits for other ranks from any thread; nothing else ends them.
#[derive(Clone)]
pub struct Abort(Arc<Shared>);

#[derive(Default)]
struct Shared {
    rank: u32,
    aborted: AtomicBool,
    flags: OnceLock<Arc<Registered>>,
    nccl: OnceLock<nccl::Abort>,
}

impl Abort {
    /// Ends the exchanges of this rank: what waits for another rank fails.
    pub fn now(&self) {
        if self.0.aborted.swap(true, Ordering::AcqRel) {
            return;
        }
        self.0.flags.get().into_iter().for_each(|flags| flags.release(self.0.rank));
        self.0.nccl.get().into_iter().for_each(nccl::Abort::now);
    }

    /// Refuses results after an aborted exchange.
    ///
    /// # Errors
    /// [`DriverError::Exchange`] after an abort.
    pub(in crate::cuda) fn check(&self, label: &str) -> Result<(), DriverError> {
        if self.0.aborted.load(Ordering::Acquire) { Err(failed(label, "another rank has failed")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_nccl_says_its_use_and_the_memory_left() {
        let error =
            explained(failed("ranks", "ncclCommInitRank failed"), "rank 1: ranks are on several hosts", 3 << 20);
        let expected = "ranks: ncclCommInitRank failed. 3 MiB of device memory are free. Copy engines are not used \
            because \
                        rank 1: ranks are on several hosts";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_backend_that_is_not_there_is_refused_by_name() {
        let requested = |value: &'static str| Requested::of(|_| Some(value.into()));
        assert_eq!(Requested::of(|_| None), Ok(None));
        assert_eq!((requested(""), requested("copies")), (Ok(None), Ok(Some(Requested::Copies))));
        assert_eq!(requested("nccl"), Ok(Some(Requested::Nccl)));
        let message = requested("tcp").unwrap_err().to_string();
        assert!(message.contains("PRECAST_EXCHANGE=tcp is set") && message.contains("copies or nccl"), "{message}");
    }
}
