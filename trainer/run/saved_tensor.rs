//! A tensor of a checkpoint as it was trained, flat, whichever ranks have which pieces of it in their files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use precast_kernels::Dtype;
use precast_system::input;

use super::error::RunError;
use crate::inputs::checkpoint::{CheckpointError, safetensors_header, stored};

/// Bytes of a tensor that are in memory at once.
const PART_BYTES: u64 = 16 << 20;

/// The header of a file of so many values.
pub(super) fn header(name: &str, elems: u64, dtype: Dtype) -> Vec<u8> {
    safetensors_header([(name.to_owned(), vec![elems as usize], stored(dtype))], None)
}

/// The file of a tensor, or of what a rank of several has of it.
pub(super) fn file_name(name: &str, rank: usize, ranks: usize) -> String {
    if ranks <= 1 { format!("{name}.safetensors") } else { format!("{name}-{:05}-of-{ranks:05}.safetensors", rank + 1) }
}

/// A tensor in the files of the ranks that wrote it, open.
pub struct SavedTensor {
    dtype: Dtype,
    files: Vec<(PathBuf, File)>,
    /// By its first element.
    pieces: Vec<Piece>,
    part: Vec<u8>,
}

/// Consecutive elements in one file.
#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    elems: u64,
    file: usize,
    /// Place of its first element in the file, bytes.
    place: u64,
}

impl SavedTensor {
    /// Opens the files of a tensor in a checkpoint's directory, which hold these pieces, rank by rank: first element
    /// and number of elements of each.
    ///
    /// # Errors
    /// [`RunError`] of a file that is not there or of another size.
    pub(super) fn open(
        directory: &Path,
        (name, dtype): (&str, Dtype),
        shards: &[Vec<(u64, u64)>],
    ) -> Result<Self, RunError> {
        let (mut files, mut pieces) = (Vec::new(), Vec::new());
        for (rank, own) in shards.iter().enumerate() {
            let path = directory.join(file_name(name, rank, shards.len()));
            let all = own.iter().map(|(_, elems)| elems).sum();
            let (file, mut place) = open(&path, name, all, dtype)?;
            files.push((path, file));
            for (start, elems) in own {
                pieces.push(Piece { start: *start, elems: *elems, file: rank, place });
                place += dtype.bytes() * elems;
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.start);
        Ok(Self { dtype, files, pieces, part: Vec::new() })
    }

    /// Gives so many elements from one on to `take`, in order, in parts of whole elements.
    ///
    /// # Errors
    /// [`RunError`] of a file, or the error of `take`.
    pub fn read_parts<E: From<RunError>>(
        &mut self,
        (start, elems): (u64, u64),
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = self.dtype.bytes();
        for piece in &self.pieces {
            let (mut from, to) = (piece.start.max(start), (piece.start + piece.elems).min(start + elems));
            if from >= to {
                continue;
            }
            let (path, file) = &mut self.files[piece.file];
            let place = piece.place + bytes * (from - piece.start);
            file.seek(SeekFrom::Start(place)).map_err(RunError::io("read", &*path))?;
            while from < to {
                let count = (to - from).min(PART_BYTES / bytes);
                self.part.resize((bytes * count) as usize, 0);
                file.read_exact(&mut self.part).map_err(RunError::io("read", &*path))?;
                take(&self.part)?;
                from += count;
            }
        }
        Ok(())
    }

    /// So many elements from one on, of a tensor of f32.
    ///
    /// # Errors
    /// [`RunError`] of a file.
    pub fn read(&mut self, of: (u64, u64)) -> Result<Vec<f32>, RunError> {
        let mut all = Vec::with_capacity(of.1 as usize);
        self.read_parts(of, |part| {
            all.extend(bytemuck::pod_collect_to_vec::<u8, f32>(part));
            Ok::<_, RunError>(())
        })?;
        Ok(all)
    }
}

/// A file of the header of so many values, and them. Returns where they begin, too.
fn open(path: &Path, name: &str, elems: u64, dtype: Dtype) -> Result<(File, u64), RunError> {
    let io = || RunError::io("read", path);
    let mut file = input::open(path).map_err(io())?;
    let expected = header(name, elems, dtype);
    let mut found = vec![0; expected.len()];
    let whole = file.metadata().map_err(io())?.len() == expected.len() as u64 + elems * dtype.bytes();
    if !whole || file.read_exact(&mut found).is_err() || found != expected {
        let problems = vec![format!("  {name} is not the {elems} {dtype} values of this student")];
        return Err(CheckpointError::tensors(path, &problems).into());
    }
    Ok((file, expected.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_ranks_are_one_tensor() {
        let dir = tempfile::tempdir().unwrap();
        let shards = [vec![(0, 3), (7, 2)], vec![(3, 4)]];
        for (rank, own) in shards.iter().enumerate() {
            let elems = own.iter().map(|(_, elems)| elems).sum();
            let values = own.iter().flat_map(|(start, elems)| (*start..start + elems).map(|one| one as f32));
            let bytes = header("m", elems, Dtype::F32).into_iter().chain(values.flat_map(f32::to_le_bytes));
            std::fs::write(dir.path().join(file_name("m", rank, 2)), bytes.collect::<Vec<u8>>()).unwrap();
        }
        let mut tensor = SavedTensor::open(dir.path(), ("m", Dtype::F32), &shards).unwrap();
        assert_eq!(tensor.read((0, 9)).unwrap(), (0..9).map(|one| one as f32).collect::<Vec<f32>>());
        assert_eq!(tensor.read((2, 6)).unwrap(), [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let half = SavedTensor::open(dir.path(), ("m", Dtype::Bf16), &shards).err().unwrap().to_string();
        assert!(half.contains("m is not the 5 bf16 values"), "{half}");
        let wrong =
            SavedTensor::open(dir.path(), ("m", Dtype::F32), &[vec![(0, 9)], vec![]]).err().unwrap().to_string();
        assert!(wrong.contains("m is not the 9 f32 values"), "{wrong}");
    }
}
