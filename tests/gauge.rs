//! What the GPU did, by a stand-in for NVML beside the one for `libcuda`: in `metrics.jsonl`, in headings, in the
//! report and at the end of a run, which never waits for it.

use crate::copies::{Host, host};
use crate::ranks::assert_same;
use crate::support::prelude::*;
use crate::support::{GPU_FIELDS, build_nvml};

const SAYS: [(&str, &str); 4] = [
    ("PRECAST_FAKE_NVML_POWER", "95000,312400"),
    ("PRECAST_FAKE_NVML_CLOCK", "1980,1500"),
    ("PRECAST_FAKE_NVML_BUSY", "3,97"),
    ("PRECAST_FAKE_NVML_THROTTLE", "0x1,0x5"),
];

fn with_nvml() -> Host {
    let host = host();
    build_nvml(host.machine.path());
    host
}

impl Host {
    /// A run that must succeed: what it prints, and its notes.
    fn says(&self, out: &str, arguments: &str, variables: &[(&str, &str)]) -> [String; 2] {
        self.distill(out, arguments).envs(variables.iter().copied()).says()
    }
}

/// What the lines of a run say of the GPU.
fn lines(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let of = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line.as_object_mut().unwrap().retain(|name, _| GPU_FIELDS.contains(&name.as_str()));
        line
    };
    text.lines().map(of).collect()
}

#[test]
fn lines_of_logged_steps_say_what_this_gpu_did() {
    skip_if!(has_driver());
    let host = with_nvml();
    let [printed, notes] = host.says("out", "--steps 4 --log-every 2 --device cuda:1", &SAYS);
    // A temperature this chip does not have.
    let said = json!({
        "power_w": 312.4, "sm_clock_mhz": 1500, "gpu_busy_percent": 97, "throttle": ["gpu_idle", "sw_power_cap"]
    });
    assert_eq!(lines(&host.out("out")), [said.clone(), said.clone(), json!({}), said]);
    assert!(printed.contains("\ngpu      312 W, SM clock 1500 MHz, 97 % busy\n"), "{printed}");
    assert_eq!(printed.matches("\ngpu:     power-limited in 100 % of the steps\n").count(), 1, "{printed}");
    assert!(!notes.contains("NVML"), "{notes}");
    let limits = json!({ "steps": 4, "power_limited_steps": 4, "thermally_limited_steps": 0 });
    assert_eq!(run_record(&host.out("out"))["gpu"], limits);
    let report = fs::read_to_string(host.out("out").join("report.html")).unwrap();
    assert!(report.contains("Power of the GPU, W") && report.contains("97 % busy; power-limited in 100 %"));
    // A GPU that only waits is not held down; and what is trained does not depend on any of this.
    let [printed, _] =
        host.says("other", "--steps 4 --log-every 2", &[SAYS[3], ("PRECAST_FAKE_NVML_TEMPERATURE", "64,65")]);
    assert!(!printed.contains("limited"), "{printed}");
    assert_eq!(lines(&host.out("other"))[0], json!({ "temperature_c": 64, "throttle": ["gpu_idle"] }));
    assert_same(&host.out("other"), &host.out("out"), "another GPU that does other things");
}

#[test]
fn ranks_say_their_own_and_rank_0_the_slowest() {
    skip_if!(has_driver());
    let host = with_nvml();
    let [printed, _] = host.says("out", "--steps 2 --log-every 1 --gpus 2", &SAYS);
    let said = json!({
        "power_w": 95.0, "sm_clock_mhz": 1980, "slowest_sm_clock_mhz": 1500, "gpu_busy_percent": 3,
            "throttle": ["gpu_idle"]
    });
    assert_eq!(lines(&host.out("out")), [said.clone(), said]);
    assert!(printed.contains("gpu      95 W, SM clock 1980 MHz") && !printed.contains("1500 MHz"), "{printed}");
    let log = fs::read_to_string(host.out("out").join("run.rank-1.log")).unwrap();
    assert!(log.contains(" device   ") && log.contains(" gpu      312 W, SM clock 1500 MHz, 97 % busy\n"), "{log}");
}

#[test]
fn without_an_answer_of_nvml_a_note_says_why() {
    skip_if!(has_driver());
    let without = |host: &Host, variables: &[(&str, &str)]| {
        let [_, notes] = host.says("out", "--steps 2 --overwrite", variables);
        assert_eq!(lines(&host.out("out")), [json!({}), json!({})]);
        let record = run_record(&host.out("out"));
        assert!(record.get("gpu").is_none());
        let mut kept: Vec<String> = list(&record["notes"]);
        kept.retain(|note| note.contains("NVML"));
        assert!(kept.len() == 1 && notes.contains(&format!("note: {}", kept[0])), "{kept:?} {notes}");
        kept[0].clone()
    };
    let host = host();
    assert!(without(&host, &[]).contains("nobody says what the GPU does: libnvidia-ml.so.1: cannot open"));
    build_nvml(host.machine.path());
    assert!(without(&host, &[("PRECAST_FAKE_NVML_REFUSES", "nvmlInit_v2")]).contains("nvmlInit_v2 failed (9)."));
    assert!(without(&host, &[("PRECAST_FAKE_NVML_BLOCKS", "0")]).contains("NVML has not answered for 2 s."));
    // Nobody expects it of a GPU that is simulated.
    let case = Case::new(17 * 4);
    let [_, notes] = case.distill("out", "--steps 2").says();
    assert!(!notes.contains("NVML") && case.record("out")["outcome"]["status"] == "done", "{notes}");
}

#[test]
fn doctor_counts_nvlinks() {
    skip_if!(has_driver());
    let host = with_nvml();
    for (links, said) in [("18,18,18,18", "4, 18 NVLinks each; "), ("18,0", "4, NVLinks by GPU: 18, 0, 0, 0; ")] {
        let mut doctor = host.machine.run(precast().with("doctor --device cuda:0 --bundle").arg(&host.bundle));
        doctor.env("PRECAST_FAKE_NVML_LINKS", links).prints(said);
    }
}
