//! Evidence of a chip: a file as it is, and a body whose seal is right. What is read is written again.
#![no_main]

use precast_fatbins::Digest;
use precast_fatbins::evidence::Evidence;
use precast_fuzz::fixture;

precast_fuzz::target!(
    || {
        let whole = fixture("trainer/programs/evidence/smollm2-135m.json");
        let small = br#"{"version":2,"program":{"version":"0.1.0","bundle":"1"},"chip":{"name":"a chip","arch":"sm_90a",
            "driver":[13,0],"memory_bytes":80000000000,"host":"x86_64"},"note":null,"seed":1,
            "kernels":{"fill{first=false}[threads=256]":{"source":"0123456789abcdef","launches":[],
            "faults":["wrong"],"microseconds":2.5}},"golden":
            [{"case":"tiny","precision":"fp32","losses":[2.5,1e-3],"gate":1e-5,"fault":null}]}"#;
        let small: Vec<u8> = small.iter().filter(|byte| **byte != b'\n').copied().collect();
        whole.split(|byte| *byte == b'\n').take(1).map(<[u8]>::to_vec).chain([small]).collect()
    },
    |input: &[u8]| {
        let body = String::from_utf8_lossy(input);
        let _ = Evidence::decode(&body);
        let seal = format!("{{\"sha256\":\"{}\"}}", Digest::of(body.as_bytes()));
        if let Ok(evidence) = Evidence::decode(&format!("{body}\n{seal}\n")) {
            assert_eq!(Evidence::decode(&evidence.encode()).expect("it was written"), evidence);
            let _ = (evidence.faults(), evidence.run("fp32").is_some(), evidence.summary());
        }
    }
);
