//! Safetensors files that are written tensor by tensor: the header follows from names and shapes alone.

use std::collections::HashMap;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

/// The length of the header and the header, for tensors of one dtype that follow it in the order given.
pub(crate) fn safetensors_header(
    tensors: impl IntoIterator<Item = (String, Vec<usize>)>,
    dtype: Dtype,
    metadata: Option<HashMap<String, String>>,
) -> Vec<u8> {
    let mut end = 0;
    let placed = tensors.into_iter().map(|(name, shape)| {
        let start = end;
        end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
        (name, TensorInfo { dtype, shape, data_offsets: (start, end) })
    });
    let metadata = Metadata::new(metadata, placed.collect()).expect("tensors that follow each other");
    let mut header = serde_json::to_vec(&metadata).expect("plain data serialises");
    // The library pads so, too: what follows is aligned.
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header].concat()
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn a_file_written_in_parts_is_that_of_the_library() {
        let (a, b) = (vec![1u8; 2 * 6], vec![2u8; 2 * 4]);
        let view = |shape: &[usize], bytes| TensorView::new(Dtype::BF16, shape.to_vec(), bytes).unwrap();
        let metadata = Some(HashMap::from([("format".to_owned(), "pt".to_owned())]));
        let whole = safetensors::serialize([("a", view(&[2, 3], &a)), ("b", view(&[4], &b))], metadata.clone());
        let shapes = [("a".to_owned(), vec![2, 3]), ("b".to_owned(), vec![4])];
        let header = safetensors_header(shapes, Dtype::BF16, metadata);
        assert_eq!([&header[..], &a, &b].concat(), whole.unwrap());
    }
}
