use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
};

use crate::play::{handle, with_scene};
use crate::write;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    match with_scene(|_| Ok(())) {
        Ok(()) => nvmlReturn_enum_NVML_SUCCESS,
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    nvmlReturn_enum_NVML_SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(_error: nvmlReturn_t) -> *const c_char {
    c"an error of the fake NVML".as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> nvmlReturn_t {
    unsafe { write::text(out, length, with_scene(|scene| Ok(scene.driver.clone()))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(out: *mut c_char, length: c_uint) -> nvmlReturn_t {
    unsafe {
        write::text(
            out,
            length,
            with_scene(|scene| Ok(format!("13.{}", scene.driver))),
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) -> nvmlReturn_t {
    unsafe { write::value(out, with_scene(|scene| Ok(scene.cuda))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> nvmlReturn_t {
    unsafe { write::value(out, with_scene(|scene| Ok(scene.cards.len() as c_uint))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let index = index as usize;
    let found = with_scene(|scene| match scene.cards.get(index) {
        Some(_) => Ok(handle(index)),
        None => Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
    });
    unsafe { write::value(out, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let uuid = unsafe { std::ffi::CStr::from_ptr(uuid) }.to_string_lossy();
    let found = with_scene(|scene| {
        let index = scene.cards.iter().position(|card| card.uuid == uuid);
        index
            .map(handle)
            .ok_or(nvmlReturn_enum_NVML_ERROR_NOT_FOUND)
    });
    unsafe { write::value(out, found) }
}
