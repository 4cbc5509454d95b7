//! `precast-aot abi`

use std::path::PathBuf;

use clap::Args;
use precast_abi::libclang;
use precast_aot::home;
use precast_aot::toolchain::{pins, wheels};
use precast_system::generated;
use precast_system::say;

use super::failure::Failure;
use super::io::refuse_inputs;

#[derive(Args)]
pub struct Arguments {
    /// Folder of the headers, or of folders that have some; or files of CUDA or PTX, whose kernels stay as they are
    #[arg(value_name = "DIR|FILE.cu|FILE.ptx", required = true)]
    sources: Vec<PathBuf>,
    /// Folder of headers that the CUDA files include
    #[arg(long, value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Instance of a template of a CUDA file, `name<float, 128>`; may be repeated
    #[arg(long, value_name = "NAME<..>")]
    instance: Vec<String>,
    /// Rust file to write, to be committed
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { sources, include, instance, out } = arguments;
    let is_cuda = |path: &PathBuf| path.extension().is_some_and(|end| end == "cu" || end == "ptx");
    let are_cuda = sources.iter().all(is_cuda);
    if !are_cuda && (sources.len() > 1 || !include.is_empty() || !instance.is_empty()) {
        let why =
            "it takes one folder of headers, or files *.cu and *.ptx with --include DIR and --instance for theirs";
        return Err(Failure::Headers(why.to_owned()));
    }
    let folders = generated::folders(&sources[0]).unwrap_or_default();
    let headers = generated::headers(&folders).unwrap_or_default();
    // A folder of headers has what was made of them.
    let files = sources.iter().filter(|_| are_cuda);
    refuse_inputs(out, headers.iter().map(|header| &header.path).chain(files))?;
    let failure = |error: &dyn std::fmt::Display| Failure::Headers(format!("{error:#}"));
    let home = home::directory();
    let program = std::env::current_exe().map_err(|error| failure(&error))?;
    let named = std::env::var_os(libclang::VARIABLE);
    let folder = match libclang::folder(&program, Some(home.clone().into()), named) {
        Some(folder) => folder,
        None => {
            let library = wheels::install(&pins::LIBCLANG, &home, |what| say!("{what}"))?;
            let folder = library.first().and_then(|path| path.parent()).expect("the wheel has the library");
            folder.to_owned()
        }
    };
    if !libclang::is_in(&folder) {
        return Err(Failure::Libclang(folder));
    }
    // A program that reads headers is started with the variable that says where libclang is.
    match precast_abi::again(&folder).map_err(|error| failure(&error))? {
        Some(status) if status.success() => return Ok(()),
        // It has said why.
        Some(status) => std::process::exit(status.code().unwrap_or(1)),
        None => {}
    }
    let is_new = match are_cuda {
        true => precast_abi::write_plain(sources, include, instance, out),
        false => precast_abi::write(&sources[0], out),
    };
    let is_new = is_new.map_err(|error| failure(&error))?;
    say!("{}: {}", out.display(), if is_new { "written" } else { "as it was" });
    Ok(())
}
