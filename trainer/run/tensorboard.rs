//! TensorBoard's event files: TFRecords of protocol buffers. The file of a run is a function of its record and of
//! `metrics.jsonl`, so that it is written whole and a run that continues goes on with the same one.
//!
//! Sources: `tensorflow/core/lib/io/record_writer.cc`, `tensorflow/core/util/event.proto`,
//! `tensorflow/core/framework/summary.proto`.

use crate::base::protobuf::Message;
use crate::run::guard::Guarded;
use crate::run::record::RunRecord;
use crate::run::step::StepRecord;

/// Its name in a run's output directory: TensorBoard reads files that have `tfevents` in their names.
pub const EVENTS: &str = "events.out.tfevents.precast";

/// The bytes of the file.
pub fn events(records: &[StepRecord], run: &RunRecord) -> Vec<u8> {
    let started = run.parts.first().map_or(0, |part| part.started_unix_s) as f64;
    let mut file = Vec::new();
    record(&mut file, &event(started, 0).bytes(3, b"brain.Event:2").done());
    let mut seconds = 0.0;
    for step in records {
        seconds += step.step_ms / 1e3;
        let summary = scalars(step).into_iter().fold(Message::default(), |summary, (tag, value)| {
            summary.bytes(1, &Message::default().bytes(1, tag.as_bytes()).float(2, value as f32).done())
        });
        record(&mut file, &event(started + seconds, step.step).bytes(5, &summary.done()).done());
    }
    file
}

/// Returns the scalars of a step; one that is not finite is left out.
fn scalars(step: &StepRecord) -> Vec<(&'static str, f64)> {
    let held_out = step.held_out.as_ref();
    let guard = step.guard.as_ref();
    let all = [
        ("train/loss", step.loss),
        ("train/kd_loss", step.kd_loss),
        ("train/ce_loss", step.ce_loss),
        ("train/grad_norm", step.grad_norm),
        ("train/lr", Some(step.lr)),
        ("speed/tokens_per_s", Some(step.tokens_per_s)),
        ("speed/row_tokens_per_s", step.row_tokens_per_s),
        ("speed/padding_share", step.padding_share),
        ("speed/step_ms", Some(step.step_ms)),
        ("gpu/power_w", step.gpu.power_w),
        ("gpu/sm_clock_mhz", step.gpu.sm_clock_mhz.map(f64::from)),
        ("gpu/temperature_c", step.gpu.temperature_c.map(f64::from)),
        ("gpu/busy_percent", step.gpu.gpu_busy_percent.map(f64::from)),
        ("eval/loss", held_out.and_then(|record| record.eval_loss)),
        ("eval/kd_loss", held_out.and_then(|record| record.eval_kd_loss)),
        ("eval/ce_loss", held_out.and_then(|record| record.eval_ce_loss)),
        ("guard/least_cosine", guard.and_then(Guarded::least_cosine)),
        ("guard/distance", guard.and_then(|guard| guard.worst().1.apart())),
    ];
    all.into_iter().filter_map(|(tag, value)| Some((tag, value?))).collect()
}

/// An `Event` of a time and a step.
fn event(wall_time: f64, step: u64) -> Message {
    Message::default().double(1, wall_time).integer(2, step)
}

/// A record of a TFRecord file: length and content, each followed by its masked checksum.
fn record(file: &mut Vec<u8>, content: &[u8]) {
    let length = (content.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked_crc32c(&length).to_le_bytes());
    file.extend(content);
    file.extend(masked_crc32c(content).to_le_bytes());
}

fn masked_crc32c(bytes: &[u8]) -> u32 {
    const MASK: u32 = 0xA282_EAD8;
    crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

/// Castagnoli's.
fn crc32c(bytes: &[u8]) -> u32 {
    const REVERSED: u32 = 0x82F6_3B78;
    let of_bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ REVERSED } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(*byte), of_bit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::record::PartRecord;

    /// RFC 3720, B.4.
    #[test]
    fn checksums_are_castagnolis() {
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46DD_794E);
    }

    #[test]
    fn a_file_grows_by_what_is_added() {
        let line = |step: u64| {
            format!(
                "{{\"step\":{step},\"loss\":1.5,\"kd_loss\":null,\"ce_loss\":1.0,\"grad_norm\":1.0,\"lr\":0.5,\
                 \"tokens\":4,\"step_ms\":1.0,\
             \"tokens_per_s\":1.0,\"memory_bytes\":8,\"power_w\":300.5,\"eval_loss\":2.5,\"eval_kd_loss\":0.0,\
             \"eval_ce_loss\":2.5,\"eval_tokens\":3,\
             \"guard\":[{{\"cosine\":0.5,\"norm\":1.0}}]}}"
            )
        };
        let records: Vec<StepRecord> = (1..=300).map(|step| serde_json::from_str(&line(step)).unwrap()).collect();
        let part = PartRecord { started_unix_s: 1_700_000_000, ..PartRecord::default() };
        let run = RunRecord { parts: vec![part], ..RunRecord::default() };
        let (short, long) = (events(&records[..2], &run), events(&records, &run));
        assert!(long.starts_with(&short) && long.len() > 100 * short.len());
        let text = String::from_utf8_lossy(&short);
        assert!(
            text.contains("brain.Event:2")
                && text.contains("eval/loss")
                && text.contains("gpu/power_w")
                && !text.contains("gpu/temperature_c")
                && text.contains("guard/least_cosine")
                && !text.contains("train/kd_loss")
        );
    }
}
