//! Reads frames that ranks send each other, and what is in them; and sequences of a cache on their way.
#![no_main]

use precast::ranks::RankFailure;
use precast::ranks::frame::{self, Kind};
use precast_system::files::Listing;

precast_fuzz::target!(
    || {
        let failure = RankFailure { rank: 1, ranks: 2, exit_code: 1, reason: "no memory".to_owned(), by_itself: true };
        let failure = serde_json::to_vec(&failure).expect("text serializes");
        let listing = format!("{}  master-00001-of-00002.safetensors\n", "ab".repeat(32));
        let frames = [(Kind::Heartbeat, &b""[..]), (Kind::Gather, listing.as_bytes()), (Kind::Failed, &failure)];
        let frames = frames.map(|(kind, bytes)| frame::of(kind, bytes).expect("a short frame"));
        frames.to_vec().into_iter().chain([frames.concat()]).collect()
    },
    |input: &[u8]| {
        let mut rest = input;
        while let Ok((kind, bytes)) = frame::read(&mut rest) {
            let before = &input[..input.len() - rest.len()];
            assert!(before.ends_with(&frame::of(kind, &bytes).expect("as long as it was")));
            match kind {
                Kind::Gather => {
                    if let Some(listing) = Listing::parse(&String::from_utf8_lossy(&bytes)) {
                        assert_eq!(Listing::parse(&listing.text()), Some(listing));
                    }
                }
                Kind::Failed => drop(serde_json::from_slice::<RankFailure>(&bytes)),
                Kind::Heartbeat | Kind::Leave => {}
            }
        }
    }
);
