//! Who started this process, and as which of how many.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::error::RankError;
use super::token::Token;

/// Environment variables that tell the ranks of `--gpus` their place.
pub const RANK: &str = "PRECAST_RANK";
pub const RANKS: &str = "PRECAST_RANKS";
pub const RENDEZVOUS: &str = "PRECAST_RENDEZVOUS";
/// The secret of a job, in hexadecimal; of one that a launcher starts, if the user gives it one.
pub const TOKEN: &str = "PRECAST_TOKEN";

/// Ports after torchrun's own that rank 0 may listen at, where torchrun does at that.
const TORCHRUN_PORTS: u16 = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launcher {
    /// A person: one rank.
    #[default]
    None,
    /// `--gpus`.
    Precast,
    Torchrun,
    OpenMpi,
    /// MPICH, and Intel MPI, which is made of it.
    Mpich,
    Slurm,
}

impl Launcher {
    pub fn name(self) -> &'static str {
        match self {
            Launcher::None => "nobody",
            Launcher::Precast => "--gpus",
            Launcher::Torchrun => "torchrun",
            Launcher::OpenMpi => "mpirun",
            Launcher::Mpich => "mpiexec",
            Launcher::Slurm => "srun",
        }
    }
}

/// Place of this process among the ranks.
#[derive(Clone, Debug)]
pub struct Place {
    pub launcher: Launcher,
    pub rank: u32,
    pub ranks: u32,
    /// Among those on this host.
    pub local_rank: u32,
    /// Addresses for rank 0 to listen at: it takes the first that it can have.
    pub addresses: Vec<String>,
    /// Listener that is open already.
    pub listener: Option<Arc<TcpListener>>,
    pub token: Token,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            launcher: Launcher::None,
            rank: 0,
            ranks: 1,
            local_rank: 0,
            addresses: Vec::new(),
            listener: None,
            token: Token::default(),
        }
    }
}

/// No job has more.
pub const MOST_RANKS: u32 = 1 << 16;

/// The names under which a launcher gives a rank, their number, the rank on its host, and the job.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    ranks: &'static str,
    local_rank: &'static str,
    job: &'static [&'static str],
}

/// In the order in which they are looked for: srun may start mpirun, and either may start torchrun. Slurm's number of
/// tasks is that of the step: an allocation has one of its own, and starts nothing.
const LAUNCHERS: [Names; 5] = [
    Names { launcher: Launcher::Precast, rank: RANK, ranks: RANKS, local_rank: RANK, job: &[] },
    Names {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        ranks: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        job: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"],
    },
    Names {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        job: &["OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"],
    },
    Names {
        launcher: Launcher::Mpich,
        rank: "PMI_RANK",
        ranks: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        job: &["PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
    Names {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        ranks: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

impl Place {
    /// By the environment; none where no launcher started this process. `given` is `--rendezvous`, and `gpus` counts
    /// those that are visible, where that decides.
    ///
    /// # Errors
    /// [`RankError::Usage`] for numbers that cannot be or are not there, and where nothing names an address.
    pub fn find(
        variable: impl Fn(&str) -> Option<String>,
        given: Option<&str>,
        gpus: impl FnOnce() -> u32,
    ) -> Result<Option<Self>, RankError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let found = LAUNCHERS.iter().find(|names| [names.rank, names.ranks].iter().all(|name| set(name).is_some()));
        check_partners(&set, found)?;
        let Some(names) = found else { return Ok(None) };
        let number = |name: &str| {
            let text = set(name).unwrap_or_default();
            let wrong = |_| RankError::Usage(format!("{name}={text} is no number"));
            text.trim().parse::<u32>().map_err(wrong)
        };
        let (rank, ranks) = (number(names.rank)?, number(names.ranks)?);
        // Under Slurm a script may set torchrun's two and leave the third.
        let agrees = |other: &&Names| [names.rank, names.ranks].map(&set) == [other.rank, other.ranks].map(&set);
        let mut of_host = LAUNCHERS.iter().filter(agrees).map(|names| names.local_rank);
        let local_rank = match of_host.find(|name| set(name).is_some()) {
            Some(name) => number(name)?,
            // There is nothing to choose.
            None if ranks <= 1 || gpus() == 1 => 0,
            None => {
                let Names { rank, ranks, local_rank, .. } = names;
                return Err(RankError::Usage(format!(
                    "{rank} and {ranks} are set and {local_rank} is not, by which a rank chooses among the GPUs of \
                    its host: set it \
                     for each rank, or make one GPU visible to each with CUDA_VISIBLE_DEVICES; unset {rank} and \
                     {ranks} to train alone"
                )));
            }
        };
        if rank >= ranks {
            let of = names.launcher.name();
            return Err(RankError::Usage(format!(
                "{}={rank} is not below {}={ranks}: {of} gives ranks from 0",
                names.rank, names.ranks
            )));
        }
        if ranks > MOST_RANKS {
            return Err(RankError::Usage(format!("{}={ranks}: expected at most {MOST_RANKS} ranks", names.ranks)));
        }
        let token = match set(TOKEN) {
            Some(token) => Token::of(&[token]),
            None => Token::of(&names.job.iter().map(|name| set(name).unwrap_or_default()).collect::<Vec<_>>()),
        };
        let mut place = Self { launcher: names.launcher, rank, ranks, local_rank, token, ..Self::default() };
        if ranks == 1 {
            return Ok(Some(place));
        }
        place.addresses = match (given, names.launcher) {
            (Some(address), _) => vec![address.to_owned()],
            (None, Launcher::Precast) => set(RENDEZVOUS).into_iter().collect(),
            (None, launcher) => master(&set, launcher)?,
        };
        if place.addresses.is_empty() {
            return Err(RankError::Usage(format!(
                "{} names no address at which ranks meet: give --rendezvous HOST:PORT, the host of rank 0 and a port \
                that is free \
                 there",
                names.launcher.name()
            )));
        }
        for address in &place.addresses {
            if address.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
                return Err(RankError::Usage(format!("--rendezvous {address}: expected HOST:PORT")));
            }
        }
        if names.launcher == Launcher::Precast && rank == 0 {
            // The process that started this one has chosen the port and listens at it: its end is this one's standard
            // input.
            let listener = std::io::stdin().as_fd().try_clone_to_owned().map(TcpListener::from);
            place.listener = Some(Arc::new(listener.map_err(RankError::io("take over the port"))?));
        }
        Ok(Some(place))
    }
}

/// Refuses a rank without their number, and a number without a rank: a run would train alone without a word. A script
/// may set one of them that says what the launcher itself does.
fn check_partners(set: &impl Fn(&str) -> Option<String>, found: Option<&Names>) -> Result<(), RankError> {
    for names in &LAUNCHERS {
        let by_launcher = found.map(|found| [set(found.rank), set(found.ranks)]).unwrap_or_default();
        let [of_rank, of_ranks] = by_launcher;
        let (name, value, partner, said) = match (set(names.rank), set(names.ranks)) {
            // A batch script has a rank, and is none.
            (Some(_), None) if names.launcher == Launcher::Slurm => continue,
            (Some(value), None) => (names.rank, value, names.ranks, of_rank),
            (None, Some(value)) => (names.ranks, value, names.rank, of_ranks),
            _ => continue,
        };
        if said.as_ref() != Some(&value) {
            return Err(RankError::Usage(format!(
                "{name}={value} is set and {partner} is not: set both for each rank, or unset {name} to train alone"
            )));
        }
    }
    Ok(())
}

/// torchrun's address, which scripts for Slurm and mpirun set, too.
fn master(set: &impl Fn(&str) -> Option<String>, launcher: Launcher) -> Result<Vec<String>, RankError> {
    let (Some(host), Some(port)) = (set("MASTER_ADDR"), set("MASTER_PORT")) else { return Ok(Vec::new()) };
    let wrong = |_| RankError::Usage(format!("MASTER_PORT={port} is no port"));
    let first: u16 = port.trim().parse().map_err(wrong)?;
    let agent =
        launcher == Launcher::Torchrun && set("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
    let ports: Vec<u16> = match agent {
        // torchrun listens at its port itself.
        true => (1..=TORCHRUN_PORTS).filter_map(|next| first.checked_add(next)).collect(),
        false => vec![first],
    };
    Ok(ports.into_iter().map(|port| format!("{host}:{port}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(variables: &[(&str, &str)], given: Option<&str>) -> Result<Option<Place>, RankError> {
        Place::find(environment(variables), given, || 2)
    }

    fn environment(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    const SRUN: [(&str, &str); 4] =
        [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_LOCALID", "1"), ("SLURM_JOB_ID", "77")];

    #[test]
    fn each_launcher_is_known_by_its_environment() {
        let of = |variables: &[(&str, &str)], given| {
            let place = place(variables, given).unwrap().unwrap();
            (place.launcher, place.rank, place.ranks, place.local_rank, place.addresses)
        };
        let torchrun =
            [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "29500")];
        assert_eq!(of(&torchrun, None), (Launcher::Torchrun, 1, 2, 1, vec!["a:29500".to_owned()]));
        let agent = [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(of(&agent, None).4[..2], ["a:29501", "a:29502"]);
        assert_eq!(of(&agent, Some("b:1")).4, ["b:1"]);
        let mpirun = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
            ("SLURM_LOCALID", "0"),
        ];
        assert_eq!(of(&mpirun, Some("c:2")), (Launcher::OpenMpi, 0, 3, 0, vec!["c:2".to_owned()]));
        assert_eq!(of(&SRUN, Some("d:3")), (Launcher::Slurm, 3, 4, 1, vec!["d:3".to_owned()]));
        // Its proxies are srun's tasks, one a node.
        let mpiexec = [("PMI_RANK", "2"), ("PMI_SIZE", "3"), ("MPI_LOCALRANKID", "1"), mpirun[3], mpirun[4], mpirun[5]];
        assert_eq!(of(&mpiexec, Some("e:4")), (Launcher::Mpich, 2, 3, 1, vec!["e:4".to_owned()]));
        let srun_by_pmi2 = [&SRUN[..], &[("PMI_RANK", "3"), ("PMI_SIZE", "4")]].concat();
        assert_eq!(of(&srun_by_pmi2, Some("f:5")).3, 1);
    }

    #[test]
    fn an_allocation_alone_starts_nothing() {
        assert!(place(&[], None).unwrap().is_none());
        let allocation = [("SLURM_JOB_ID", "77"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0")];
        assert!(place(&allocation, None).unwrap().is_none());
        let alone = [("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")];
        assert_eq!(place(&alone, None).unwrap().unwrap().ranks, 1);
    }

    #[test]
    fn one_visible_gpu_stands_for_a_rank_on_the_host() {
        let two = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];
        let of = |variables: &[(&str, &str)], gpus| {
            let place = Place::find(environment(variables), Some("h:1"), || gpus);
            place.map(|place| place.map(|place| (place.ranks, place.local_rank)))
        };
        assert_eq!(of(&two, 1).unwrap(), Some((2, 0)));
        for gpus in [0, 2, 8] {
            let message = of(&two, gpus).unwrap_err().to_string();
            assert!(message.contains("RANK and WORLD_SIZE are set and LOCAL_RANK is not"), "{message}");
        }
        let by_slurm =
            [&two[..], &[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_LOCALID", "1")]].concat();
        assert_eq!(of(&by_slurm, 4).unwrap(), Some((2, 1)));
        let message = of(&SRUN[..2], 4).unwrap_err().to_string();
        assert!(message.contains("SLURM_LOCALID is not"), "{message}");
        assert_eq!(of(&[("RANK", "0"), ("WORLD_SIZE", "1")], 8).unwrap(), Some((1, 0)));
    }

    #[test]
    fn a_rank_and_their_number_are_partners() {
        let refused = |variables: &[(&str, &str)], given| place(variables, given).unwrap_err().to_string();
        for (name, partner) in [
            ("RANK", "WORLD_SIZE"),
            ("WORLD_SIZE", "RANK"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
            ("PMI_SIZE", "PMI_RANK"),
            ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
            (RANKS, RANK),
        ] {
            let message = refused(&[(name, "1")], None);
            assert!(message.starts_with(&format!("{name}=1 is set and {partner} is not")), "{message}");
        }
        // Scripts for Slurm set torchrun's number: it must be Slurm's.
        let with = |number: &'static str| [&SRUN[..], &[("WORLD_SIZE", number)]].concat();
        assert_eq!(place(&with("4"), Some("h:1")).unwrap().unwrap().launcher, Launcher::Slurm);
        assert!(refused(&with("8"), Some("h:1")).starts_with("WORLD_SIZE=8 is set and RANK is not"));
    }

    #[test]
    fn numbers_and_addresses_that_cannot_be_are_refused_by_name() {
        let torchrun = |rank, ranks| [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", "0")];
        let refused = [
            place(&SRUN, None),
            place(&SRUN, Some("nowhere")),
            place(&torchrun("2", "2"), None),
            place(&torchrun("x", "2"), None),
            place(&torchrun("0", "65537"), None),
            place(&torchrun("0", "4294967295"), None),
        ];
        insta::assert_snapshot!(refused.map(|place| place.unwrap_err().to_string()).join("\n"));
    }

    #[test]
    fn jobs_have_tokens_of_their_own() {
        let token = |job: &str| {
            let variables = [&SRUN[..3], &[("SLURM_JOB_ID", job)]].concat();
            place(&variables, Some("h:1")).unwrap().unwrap().token
        };
        assert_eq!(token("1"), token("1"));
        assert_ne!(token("1"), token("2"));
    }
}
