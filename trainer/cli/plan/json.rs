//! `plan --json`

use precast_plan::MemoryTable;
use serde_json::{Value, json};

use super::planned::{Kernels, Planned, Step};

impl Planned<'_> {
    /// For programs.
    pub fn json(&self) -> Value {
        let Self { config, target, forms, step: Step { tokens, flops, estimate }, .. } = self;
        json!({
            "arch": target.arch.name(),
            "memory": MemoryTable::of(&self.plan.plan),
            "host_memory": self.host,
            "room": target.room.as_ref().map(|room| json!({
                "bytes": room.bytes,
                "fits": self.refusal.is_none(),
                "least_change": self.refusal.as_ref().and_then(|refusal| refusal.change.as_ref()),
            })),
            "teacher_format": self.has_own_teacher.then(|| json!({
                "chosen": forms.chosen(target).map(|format| format.to_string()), "choices": forms.all,
            })),
            "student_format": self.student_format.map(|format| format.to_string()),
            "teacher_is_base": self.shared,
            "trained_parameters": self.trained,
            "recompute": { "chosen": config.arithmetic.recompute.to_string(), "choices": self.choices },
            "kernels": self.kernels.json(),
            "cublas": self.kernels.cublas_json(),
            "step": {
                "tokens": tokens,
                "flops": flops,
                "estimate": estimate.map(|(peak, seconds)| json!({
                    "device": peak.device, "seconds": seconds, "tokens_per_s": *tokens as f64 / seconds,
                })),
            },
        })
    }
}

impl Kernels {
    fn json(&self) -> Vec<Value> {
        let kernel = |(pair, times): (&precast_kernels::KeyVariant, &usize)| {
            json!({
                "key": pair.key.to_string(),
                "variant": pair.variant.to_string(),
                "launches": times,
                "sha256": self.digests.get(pair),
            })
        };
        self.launches.iter().map(kernel).collect()
    }

    fn cublas_json(&self) -> Option<Value> {
        let products = self.products.iter().map(|(key, launches)| {
            json!({
                "key": key.to_string(), "launches": launches,
            })
        });
        (!self.products.is_empty()).then(|| {
            json!({
                "products": products.collect::<Vec<_>>(),
                "in_place_of": self.replaced.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        })
    }
}
