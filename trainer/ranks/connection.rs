//! The connection of a rank to the others.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use precast_plan::Share;
use precast_runtime::Mesh;

use super::control::Control;
use super::{Launcher, Place, RankError, alike, rendezvous};
use crate::base::signal::Signal;
use crate::base::stop::Stop;

/// Connection of a rank to the others; a rank that is alone has none.
#[derive(Clone, Default)]
pub struct Ranks {
    pub place: Place,
    pub(super) control: Option<Arc<Control>>,
    /// All of them stop after the same step.
    pub(super) stops: Arc<AtomicBool>,
}

impl Ranks {
    /// A rank that has not met the others.
    pub fn of(place: &Place) -> Self {
        Self { place: place.clone(), ..Self::default() }
    }

    /// Brings all ranks together.
    ///
    /// # Errors
    /// [`RankError`] that says who is missing and where.
    pub fn rendezvous(place: Place, stop: &Stop) -> Result<Self, RankError> {
        if place.ranks == 1 {
            return Ok(Self { place, ..Self::default() });
        }
        let peers = rendezvous::rendezvous(&place, stop)?;
        let control = Control::start(place.rank, place.ranks, peers)?;
        if place.launcher == Launcher::Precast && place.rank > 0 {
            let control = Arc::clone(&control);
            // Its other end closes with the process that started the ranks, however that ends.
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                control.fail_by("the process that started the ranks is gone");
            });
        }
        Ok(Self { place, control: Some(control), stops: Arc::default() })
    }

    pub fn is_first(&self) -> bool {
        self.place.rank == 0
    }

    /// True if nobody is there to agree with: of a run on one GPU, and of a dry run.
    pub fn are_alone(&self) -> bool {
        self.control.is_none()
    }

    pub fn count(&self) -> u32 {
        self.place.ranks
    }

    /// This rank's share of a step of so many replicas.
    pub fn share(&self, replicas: u32) -> Share {
        Share { replicas, ranks: self.place.ranks, rank: self.place.rank }
    }

    /// The bytes of every rank, by rank. A collective: all ranks call all of these in the same order.
    ///
    /// # Errors
    /// [`RankError::Failed`] where a rank has failed.
    pub fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, RankError> {
        match &self.control {
            None => Ok(vec![own.to_vec()]),
            Some(control) => control.all_gather(own),
        }
    }

    /// The bytes of rank 0.
    ///
    /// # Errors
    /// As [`Self::all_gather`].
    pub fn broadcast(&self, own: &[u8]) -> Result<Vec<u8>, RankError> {
        let own = if self.is_first() { own } else { &[] };
        Ok(self.all_gather(own)?.swap_remove(0))
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`Self::all_gather`].
    pub fn barrier(&self) -> Result<(), RankError> {
        self.all_gather(&[]).map(|_| ())
    }

    /// Refuses to begin where something is not the same on all ranks, by name.
    ///
    /// # Errors
    /// [`RankError::Different`], on every rank.
    pub fn check_alike(&self, own: &[(String, String)]) -> Result<(), RankError> {
        if self.control.is_none() {
            return Ok(());
        }
        let lists = self.all_gather(serde_json::to_string(own).expect("text serializes").as_bytes())?;
        alike::check(&lists)
    }

    /// Connects each rank with each other.
    ///
    /// # Errors
    /// [`RankError`].
    pub fn mesh(&self) -> Result<Mesh, RankError> {
        self.connect().map(Mesh::new)
    }

    /// Returns a connection to each other rank, by rank; they are shut down when a rank fails.
    ///
    /// # Errors
    /// [`RankError`].
    pub fn connect(&self) -> Result<Vec<Option<TcpStream>>, RankError> {
        let Some(control) = &self.control else { return Ok(vec![None]) };
        let local = control.local_address()?;
        let listener = TcpListener::bind((local, 0)).map_err(RankError::io("listen for other ranks"))?;
        let own = listener.local_addr().map_err(RankError::io("listen for other ranks"))?.to_string();
        let addresses = self.all_gather(own.as_bytes())?;
        let addresses: Vec<String> = addresses.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        let peers = rendezvous::mesh(&self.place, &listener, &addresses)?;
        let clones: std::io::Result<Vec<TcpStream>> = peers.iter().flatten().map(TcpStream::try_clone).collect();
        control.on_failure({
            let clones = clones.map_err(RankError::io("connect ranks"))?;
            Box::new(move || clones.iter().for_each(|stream| _ = stream.shutdown(std::net::Shutdown::Both)))
        });
        Ok(peers)
    }

    /// Registers what ends this rank's waits for another one that has failed.
    pub fn on_failure(&self, abort: Box<dyn Fn() + Send + Sync>) {
        if let Some(control) = &self.control {
            control.on_failure(abort);
        }
    }

    /// True if all ranks stop after the same step.
    pub fn all_stop(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    /// The failure that ends the run, if it is known or becomes known within that time.
    pub fn first_failure(&self, patience: Duration) -> Option<RankError> {
        self.control.as_ref()?.first_failure(patience)
    }

    /// Tells the others that this rank has done its work.
    pub fn leave(&self) {
        self.control.iter().for_each(|control| control.leave());
    }

    /// Reports to the others that this rank has failed.
    pub fn fail(&self, exit_code: u8, reason: String) {
        if let Some(control) = &self.control {
            control.fail(exit_code, reason);
        }
    }

    /// Agrees with the others to stop after the step that is under way, as soon as one rank is asked to: by the signal
    /// that it has got. Returns the SM clocks of all of them, too, by rank.
    ///
    /// # Errors
    /// As [`Self::all_gather`].
    pub fn agree(
        &self,
        stop: &Stop,
        sm_clock_mhz: Option<u32>,
    ) -> Result<(Option<Signal>, Vec<Option<u32>>), RankError> {
        let own = stop.close(self.count());
        let said = (own.map(Signal::exit_code), sm_clock_mhz.filter(|clock| *clock > 0));
        let all = self.all_gather(&serde_json::to_vec(&said).expect("numbers serialize"))?;
        let read = |said: &Vec<u8>| serde_json::from_slice::<(Option<u8>, Option<u32>)>(said).unwrap_or_default();
        let (signals, clocks): (Vec<_>, Vec<_>) = all.iter().map(read).unzip();
        let signal = signals.into_iter().flatten().find_map(Signal::of_exit_code);
        self.stops.store(signal.is_some(), Ordering::Relaxed);
        if signal.is_none() {
            stop.go_on();
        }
        Ok((signal, clocks))
    }
}
