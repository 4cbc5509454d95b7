//! Writes the Rust of CUDA files.

use std::path::{Component, Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use precast_core::plain::interface;
use precast_core::shell::quoted;
use precast_core::source::words;
use precast_system::includes::included;
use precast_system::{generated, input};

use super::emit::{self, File};
use super::read;
use crate::put;

/// Writes the Rust of the kernels in these CUDA files, and of instances of their templates (`scale<float, 128>`), to a
/// file of the package in whose folder this runs. Headers are found beside them and in `folders`. Returns false where
/// the file is as it was.
///
/// # Errors
/// No libclang; a kernel that cannot be launched from Rust, with file and line; a header of another folder; an instance
/// of no template of a file, or of several files'; a file that cannot be written.
pub fn write_plain(files: &[PathBuf], folders: &[PathBuf], instances: &[String], out: &Path) -> Result<bool> {
    // Where a checkout lies is nobody's business.
    let here = std::env::current_dir()?;
    let own = |path: &PathBuf| path.strip_prefix(&here).unwrap_or(path).to_owned();
    let (files, folders): (Vec<PathBuf>, Vec<PathBuf>) =
        (files.iter().map(own).collect(), folders.iter().map(own).collect());
    let out = own(&out.to_owned());
    let shown = |path: &PathBuf| quoted(&path.display().to_string());
    let named = files.iter().map(shown);
    let named = named.chain(folders.iter().flat_map(|folder| ["--include".to_owned(), shown(folder)]));
    let named = named.chain(instances.iter().flat_map(|instance| ["--instance".to_owned(), quoted(instance)]));
    let command = format!("precast-aot abi {} --out {}", named.collect::<Vec<_>>().join(" "), shown(&out));

    let (scratch, mut records, mut read) = (tempfile::tempdir()?, read::Records::new(), Vec::new());
    let texts: Vec<String> = files.iter().map(|file| input::text(file)).collect::<Result<_, _>>()?;
    let owners: Vec<&Path> = instances.iter().map(|instance| owner(instance, &files, &texts)).collect::<Result<_>>()?;
    for (file, text) in files.iter().zip(&texts) {
        let own = instances.iter().zip(&owners).filter(|(_, owner)| **owner == file);
        let instances: Vec<&str> = own.map(|(instance, _)| instance.as_str()).collect();
        let entries = match is_ptx(file) {
            true => read::ptx_entries(file, text)?,
            false => read::entries(file, &folders, &instances, scratch.path(), &mut records)?,
        };
        let headers = included(file, &folders)?;
        let path = file.display().to_string();
        let texts = headers.iter().map(|header| (header.name.as_str(), header.text.as_str()));
        read.push(File {
            interface: interface([(path.as_str(), text.as_str())].into_iter().chain(texts)).to_string(),
            path,
            from_out: relative(file, &out),
            instances: instances.into_iter().map(str::to_owned).collect(),
            headers: headers.iter().map(|header| (header.name.clone(), relative(&header.path, &out))).collect(),
            entries,
        });
    }
    if let Some(name) = emit::twice(&read) {
        bail!("two files or kernels would be `{name}` in {}: rename one, or write two files", out.display());
    }
    let body = emit::body(&read, &records, &out.display().to_string(), &command);
    let of: Vec<String> = files.iter().map(|file| format!("`{}`", file.display())).collect();
    let what = format!("Kernels of {}, as they are.", of.join(", "));
    let interfaces: Vec<&str> = read.iter().map(|file| file.interface.as_str()).collect();
    put(&out, &generated::head(&what, &command, &interfaces.join(" "), &body))
}

fn is_ptx(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "ptx")
}

/// Returns the CUDA file of an instance: the only one, or the only one that names its template, `scale` of
/// `of::scale<float>`.
fn owner<'f>(instance: &str, files: &'f [PathBuf], texts: &[String]) -> Result<&'f Path> {
    let (template, _) = instance
        .split_once('<')
        .ok_or_else(|| anyhow!("`{instance}` has no arguments: an instance is `name<float, 128>`"))?;
    let name = template.rsplit("::").next().unwrap_or_default().trim();
    let names_it = |text: &str| words::identifiers(&words::code(text)).any(|word| word == name);
    let mut of: Vec<(&PathBuf, &String)> = files.iter().zip(texts).filter(|(file, _)| !is_ptx(file)).collect();
    if of.len() > 1 {
        of.retain(|(_, text)| names_it(text));
    }
    match &of[..] {
        [(file, _)] => Ok(file),
        [] => bail!("no file names the template of the instance `{instance}`"),
        several => {
            let several: Vec<String> = several.iter().map(|(file, _)| file.display().to_string()).collect();
            bail!("{} name the template of `{instance}`: give each file a command of its own", several.join(", "))
        }
    }
}

/// The path of a file from the folder of another.
fn relative(file: &Path, from: &Path) -> String {
    if file.is_absolute() {
        return file.display().to_string();
    }
    let depth = from.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let up = if from.is_absolute() { 0 } else { depth.saturating_sub(1) };
    "../".repeat(up) + &file.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Held by who reads: there is one libclang in a process.
    static READING: Mutex<()> = Mutex::new(());

    /// Writes the Rust of `k/a.cu`, beside `b.h`, with `third/c.h`.
    fn of(text: &str) -> Result<String, String> {
        of_instances(text, &[])
    }

    fn of_instances(text: &str, instances: &[&str]) -> Result<String, String> {
        let instances: Vec<String> = instances.iter().map(ToString::to_string).collect();
        let _reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let [file, out, folder] = ["k/a.cu", "kernels.rs", "third"].map(|name| dir.path().join(name));
        let files = [(&*file, text), (&dir.path().join("k/b.h"), "struct pair { double x; char y; };")];
        for (path, text) in
            files.into_iter().chain([(&*folder.join("c.h"), "typedef unsigned long long u64;\n#error no")])
        {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (files, folders) = ([file], [folder]);
        let written = write_plain(&files, &folders, &instances, &out);
        let shown = |text: String| text.replace(&format!("{}/", dir.path().display()), "");
        assert!(written.map_err(|error| shown(format!("{error:#}")))?);
        assert!(!write_plain(&files, &folders, &instances, &out).unwrap(), "a second time it is as it was");
        Ok(shown(fs::read_to_string(out).unwrap()))
    }

    #[test]
    fn a_kernel_is_a_function_of_its_arguments_where_cuda_has_them() {
        let text = "#include \"b.h\"\n#include <c.h>\n\
                    struct nest { pair of[2]; const float* const* at; enum { A } which; bool on; };\n\
                    template <typename T> __global__ void generic(T x) { x = atomicAdd(nothing, here); }\n\
                    extern \"C\" __global__ void declared(int n);\n\
                    extern \"C\" { __global__ void __launch_bounds__(2 * 64)\n\
                    declared(int n) { threadIdx.x; } }\n\
                    extern \"C\" __global__ void both(\n\
                    char type, const nest p, float3 f, double4* __restrict__ out, u64 n, int) {}";
        let written = of(text).unwrap();
        for part in [
            "#[repr(C, align(8))]\npub struct pair {\n    /// `double`\n    pub x: f64,\n    \
             /// `char`\n    pub y: i8,\n    pub padding_9: [u8; 7],\n}",
            "    pub of: [pair; 2],\n    /// `const float *const *`\n    pub at: address,\n",
            "    pub which: u32,\n    /// `bool`\n    pub on: bool,\n    pub padding_45: [u8; 3],\n}",
            "(\"b.h\", include_str!(\"k/b.h\")),\n            (\"c.h\", include_str!(\"third/c.h\")),\n",
            "entries: &[\"declared\", \"both\"],",
            "    declared(n: i32 = 0)",
            "    both(r#type: i8 = 0, p: nest = 8, f: float3 = 56, out: address = 72, n: u64 = 80, ",
            "n: u64 = 80, unnamed_5: i32 = 88)",
            "    /// - `out`: `double4 *__restrict`",
            "pub const PLAIN: &[&PlainKernel] = &[&DECLARED, &BOTH];",
        ] {
            assert!(written.contains(part), "{part}\n{written}");
        }
    }

    #[test]
    fn ptx_says_how_large_its_parameters_are() {
        let dir = tempfile::tempdir().unwrap();
        let [file, out] = ["a.ptx", "kernels.rs"].map(|name| dir.path().join(name));
        let text = ".target sm_80\n.visible .entry f(\n.param .b32 f_param_0,\n.param .align 16 .b8 f_param_1[32],\n\
                    .param .u64 .ptr .global .align 4 f_param_2\n)\n{ }\n";
        fs::write(&file, text).unwrap();
        write_plain(std::slice::from_ref(&file), &[], &[], &out).unwrap();
        let written = fs::read_to_string(&out).unwrap();
        assert!(written.contains("f(f_param_0: u32 = 0, f_param_1: [u8; 32] = 16, f_param_2: u64 = 48)"), "{written}");
        fs::write(&file, "\n.visible .entry f(.param .u64)").unwrap();
        let said = write_plain(&[file], &[], &[], &out).unwrap_err().to_string();
        assert!(said.ends_with("a.ptx:2: no entry that is read"), "{said}");
    }

    #[test]
    fn names_that_cpp_mangles_and_instances_of_templates_are_kernels() {
        let text = "namespace of { __global__ void shift(float* x, int n) {}\n\
                    template <class T> __global__ void fill(T) {} }\n\
                    template <typename T> struct rows { T* at; int count; };\n\
                    template <typename T, int N> __global__ void scale(rows<T> x, T by) { nothing(x); }\n";
        let written =
            of_instances(text, &["scale<float, 128>", "scale<unsigned long long, 1>", "of::fill<int>"]).unwrap();
        for part in [
            "entries: &[\"shift\", \"scale\", \"fill\"],\n    instances: &[\"scale<float, 128>\", \
             \"scale<unsigned long long, 1>\", \"of::fill<int>\"],",
            "A_CU SHIFT = \"shift\" as \"_ZN2of23shift__PLACE_OF_DIGITS_EPfi\",\n    \
             shift(x: address = 0, n: i32 = 8)",
            "A_CU SCALE_FLOAT_128 = \"scale<float,128>\" \
             as \"_Z23scale__PLACE_OF_DIGITS_IfLi128EEv4rowsIT_ES1_\",\n    \
             scale_float_128(x: rows_float_ = 0, by: f32 = 16)",
            "SCALE_UNSIGNED_LONG_LONG_1 = \"scale<unsigned_long_long,1>\"",
            "by: u64 = 16)",
            "A_CU FILL_INT = \"fill<int>\" as \"_ZN2of22fill__PLACE_OF_DIGITS_IiEEvT_\",\n    \
             fill_int(unnamed_0: i32 = 0)",
            "--instance 'scale<float, 128>'",
        ] {
            assert!(written.contains(part), "{part}\n{written}");
        }
        for (instance, why) in [
            ("scale<float>", "k/a.cu: `scale<float>` is no instance of a kernel: "),
            ("rows<float>", "k/a.cu: `rows<float>` is no instance of a kernel"),
            ("missing<float>", "k/a.cu: `missing<float>` is no instance of a kernel: "),
            ("scale", "`scale` has no arguments"),
        ] {
            // The one that is at fault is named, among others.
            let others = ["scale<int, 1>", instance, "scale<int, 2>"];
            let said = of_instances(text, &others).unwrap_err();
            assert!(said.contains(why), "{why}\n{said}");
        }
    }

    #[test]
    fn an_instance_is_of_the_one_file_that_names_its_template() {
        let files = ["a.cu", "b.cu", "c.ptx"].map(PathBuf::from);
        let texts = ["scale(x) both", "fill(x) both // scale", "scale"].map(str::to_owned);
        let owner = |instance| owner(instance, &files, &texts).map_err(|error| error.to_string());
        assert_eq!((owner("of::scale<int>"), owner("fill<int>")), (Ok(Path::new("a.cu")), Ok(Path::new("b.cu"))));
        assert_eq!(owner("none<int>").unwrap_err(), "no file names the template of the instance `none<int>`");
        assert!(owner("both<int>").unwrap_err().starts_with("a.cu, b.cu name the template of `both<int>`: give each"));
    }

    #[test]
    fn two_that_would_have_one_name_in_rust_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("kernels.rs");
        let written = |[one, other]: [(&str, &str); 2]| {
            let put = |(path, entry): (&str, &str)| {
                let path = dir.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, format!(".target sm_80\n.visible .entry {entry}()\n{{ }}\n")).unwrap();
                path
            };
            write_plain(&[put(one), put(other)], &[], &[], &out).map_err(|error| error.to_string())
        };
        for (pair, name) in [([("a/k.ptx", "f"), ("b/k.ptx", "g")], "K_PTX"), ([("a.ptx", "f"), ("b.ptx", "F")], "F")] {
            let said = written(pair).unwrap_err();
            assert!(said.starts_with(&format!("two files or kernels would be `{name}` in ")), "{said}");
            assert!(!out.exists());
        }
        assert_eq!(written([("a.ptx", "f"), ("b.ptx", "g")]), Ok(true));
    }

    #[test]
    fn what_cannot_be_launched_from_rust_is_refused_with_its_line() {
        let kernel = |parameter: &str| format!("struct base {{}};\nextern \"C\" __global__ void f({parameter}) {{}}");
        for (text, why) in [
            ("\nstatic __global__ void f(int n) {}".to_owned(), "k/a.cu:2: `f` is static, or in a namespace without"),
            (
                "namespace { __global__ void f(int n) {} }".to_owned(),
                "k/a.cu:1: `f` is static, or in a namespace without",
            ),
            ("__device__ int f() { return 1; }".to_owned(), "k/a.cu: no kernel: `__global__"),
            (kernel("__half x"), "k/a.cu:2: unknown type name '__half'"),
            (kernel("long double x"), "k/a.cu:2: `long double` has no Rust type"),
            (
                "union u { int a; float b; };\n".to_owned() + &kernel("u x"),
                "k/a.cu:3: `u` cannot be passed from Rust: it is no",
            ),
            ("struct s { int a : 3; };\n".to_owned() + &kernel("s x"), "a field has no name, or bits for a place"),
            (
                kernel("int n").replace("{};", "{} ;\nstruct more : base { int a; };").replace("int n", "more m"),
                "it has a base",
            ),
            ("#include \"../k/../third/../../etc.h\"\n".to_owned() + &kernel("int n"), "file not found"),
        ] {
            let said = of(&text).unwrap_err();
            assert!(said.contains(why), "{why}\n{said}");
        }
    }
}
