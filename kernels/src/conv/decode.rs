//! Convolution of rows in slots: the tokens in front of a run of rows are those that its slot keeps.

use super::{Run, host};
use crate::abi::{ConvDecode, conv_decode_params};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance, one_variant};

impl Build for ConvDecode {
    one_variant!(Run { blocks: 4, threads: 128, tokens: 1 });

    fn source(&self, _variant: Run) -> Source {
        Source {
            path: "conv/decode.cu",
            text: include_str!("decode.cu"),
            headers: &[
                ("conv.h", include_str!("conv.h")),
                ("conv_decode.h", include_str!("conv_decode.h")),
                ("conv/run.cuh", include_str!("run.cuh")),
                ("kv.h", include_str!("../kv/kv.h")),
                ("kv/run.cuh", include_str!("../kv/run.cuh")),
            ],
            common: &crate::COMMON,
        }
    }

    /// Launches CTAs for each row, with a thread for each vector of channels; those of a run's first row compute it.
    fn geometry(&self, run: Run, p: &conv_decode_params) -> Geometry {
        let width = self.x.vector_width(p.channels).min(self.x.vector_width(p.row_columns));
        Geometry::linear((p.channels / width).div_ceil(run.threads) * p.rows, run.threads)
    }
}

impl Reference for ConvDecode {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &conv_decode_params, views: &mut Views<'_>) {
        host::decode(*self, p, views);
    }

    fn samples(&self) -> Vec<conv_decode_params> {
        [(1, 1, 1, 1, 1), (9, 12, 5, 72, 80), (37, 20, 70, 16, 16), (70, 40, 9, 259, 261)]
            .map(|(rows, slots, seq_len, channels, row_columns)| conv_decode_params {
                rows,
                slots,
                seq_len,
                channels,
                row_columns,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> conv_decode_params {
        let (rows, seq_len) = (batch.tokens().div_ceil(8), batch.seq_len);
        conv_decode_params { rows, slots: rows, seq_len, channels: 6144, row_columns: 8224, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        if operand.name == "history" { Tolerance::EXACT } else { Tolerance::of(operand.format) }
    }
}
