//! What is written is read again.

use precast_kernels::Block;
use precast_plan::Parameter;
use proptest::prelude::*;

use super::super::container::Header;
use super::super::key_values::KeyValues;
use super::super::write::{Tensor, Values, header, write};
use crate::checkpoint::kind::Kind;

fn tensor(index: usize, rows: u64, blocks: u64, kind: Kind) -> Tensor {
    let name = format!("blk.{index}.x");
    let parameter = Parameter { name: name.clone(), shape: vec![rows, blocks * 32] };
    Tensor { name, values: Values::Of(parameter), kind }
}

proptest! {
    #[test]
    fn metadata_and_tensors_are_read_as_they_were_written(
        integers: [u32; 2],
        number in -1e30f32..1e30,
        text: String,
        texts in prop::collection::vec(any::<String>(), 1..5),
        list in prop::collection::vec(any::<i32>(), 1..5),
        shapes in prop::collection::vec((1u64..5, 1u64..3, 0usize..4), 1..6),
    ) {
        let mut keys = KeyValues::default();
        keys.integer("a.integer", integers[0]);
        keys.signed("a.signed", (integers[1] >> 1) as i32);
        keys.float("a.number", number);
        keys.flag("a.flag", integers[0] % 2 == 0);
        keys.string("a.text", &text);
        keys.strings("a.texts", &texts);
        keys.integers("a.list", list.iter().copied());
        keys.floats("a.numbers", [number, -number].into_iter());
        let kinds = [Kind::F32, Kind::F16, Kind::Bf16, Kind::Block(Block::Q8_0)];
        let tensors: Vec<Tensor> = shapes.iter().enumerate()
            .map(|(index, (rows, blocks, kind))| tensor(index, *rows, *blocks, kinds[*kind])).collect();
        let head = header(&keys, &tensors);
        let mut file = Vec::new();
        let fill = |tensor: &Tensor| (0..tensor.bytes()).map(|at|
            (at * 7 + tensor.name.len() as u64) as u8).collect::<Vec<_>>();
        write::<std::io::Error, _>(&mut file, (&head, &tensors), |error| error, |tensor, write| {
            fill(tensor).chunks(50).try_for_each(write)
        }).unwrap();

        let Header { metadata, tensors: read } = Header::read(&file, file.len() as u64).unwrap();
        prop_assert_eq!(metadata.integer("a.integer").unwrap(), Some(u64::from(integers[0])));
        prop_assert_eq!(metadata.integer("a.signed").unwrap(), Some(u64::from(integers[1] >> 1)));
        prop_assert_eq!(metadata.decimal("a.number").unwrap().map(|value| value as f32), Some(number));
        prop_assert_eq!(metadata.flag("a.flag").unwrap(), Some(integers[0] % 2 == 0));
        prop_assert_eq!(metadata.string("a.text").unwrap(), Some(text));
        let found: Vec<String> =
            metadata.strings(&file, "a.texts").unwrap().unwrap().into_iter().map(str::to_owned).collect();
        prop_assert_eq!(found, texts);
        prop_assert_eq!(metadata.integers(&file, "a.list").unwrap(), Some(list));
        prop_assert_eq!(metadata.floats(&file, "a.numbers").unwrap(), Some(vec![number, -number]));
        prop_assert_eq!(read.len(), tensors.len());
        for (read, tensor) in read.iter().zip(&tensors) {
            prop_assert_eq!(&read.name, &tensor.name);
            prop_assert_eq!(read.tensor.kind.as_ref().unwrap(), &tensor.kind);
            let Values::Of(parameter) = &tensor.values else { unreachable!() };
            prop_assert_eq!(&read.tensor.shape, &parameter.shape);
            let start = read.tensor.start as usize;
            prop_assert_eq!(&file[start..start + tensor.bytes() as usize], &fill(tensor)[..]);
        }
    }
}
