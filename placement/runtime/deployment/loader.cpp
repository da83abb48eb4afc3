// Runs a deployed model with OpenVINO alone, in the form that OpenVINO runs alone.
//
//   OPENVINO=$(python -c "import openvino, pathlib; print(pathlib.Path(openvino.__file__).parent)")
//   g++ -std=c++17 -O2 -I$OPENVINO/include loader.cpp $OPENVINO/libs/libopenvino.so.* -o loader
//   export LD_LIBRARY_PATH=$OPENVINO/libs
//   ./loader FOLDER OUTPUTS [INPUT ...]
//
// FOLDER holds placement.json, which names the model. Each INPUT is the raw content of one input, in
// the order of the model; without any, all inputs are zero. The raw content of output i is written to
// OUTPUTS/output_i.bin. The digests in placement.json are not checked, and the properties in it are
// passed on to OpenVINO: run only folders that you trust.

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <openvino/openvino.hpp>

namespace {

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A reader of the JSON that the deployment writes. Objects become ov::AnyMap and lists
// std::vector<ov::Any>. Numbers and true or false become texts, which OpenVINO converts itself.
class Json {
public:
    static ov::Any parse(const std::string& text) {
        Json json(text);
        return json.value();
    }

private:
    explicit Json(const std::string& text) : text_(text) {}

    char next() {
        while (position_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[position_])))
            ++position_;
        if (position_ == text_.size()) throw std::runtime_error("the JSON ends too early");
        return text_[position_];
    }

    void expect(char character) {
        if (next() != character)
            throw std::runtime_error(std::string("the JSON lacks a ") + character);
        ++position_;
    }

    ov::Any value() {
        switch (next()) {
        case '{': return object();
        case '[': return list();
        case '"': return string();
        default: return word();
        }
    }

    ov::AnyMap object() {
        ov::AnyMap members;
        expect('{');
        while (next() != '}') {
            const std::string key = string();
            expect(':');
            members[key] = value();
            if (next() == ',') ++position_;
        }
        expect('}');
        return members;
    }

    std::vector<ov::Any> list() {
        std::vector<ov::Any> items;
        expect('[');
        while (next() != ']') {
            items.push_back(value());
            if (next() == ',') ++position_;
        }
        expect(']');
        return items;
    }

    std::string word() {
        const auto end = text_.find_first_of(",]} \n", position_);
        const std::string result = text_.substr(position_, end - position_);
        position_ = std::min(end, text_.size());
        if (result == "true") return "YES";
        if (result == "false") return "NO";
        return result;
    }

    unsigned code_unit() {
        const unsigned code = std::stoul(text_.substr(position_, 4), nullptr, 16);
        position_ += 4;
        return code;
    }

    std::string string() {
        std::string result;
        expect('"');
        while (position_ < text_.size() && text_[position_] != '"') {
            if (text_[position_] != '\\') {
                result += text_[position_++];
                continue;
            }
            const char escaped = text_.at(position_ + 1);
            position_ += 2;
            static const std::string letters = "bfnrt", characters = "\b\f\n\r\t";
            const auto index = letters.find(escaped);
            if (escaped == 'u') {
                unsigned code = code_unit();
                if (code >= 0xD800 && code < 0xDC00) {  // the first half of a surrogate pair
                    position_ += 2;
                    code = 0x10000 + ((code - 0xD800) << 10) + (code_unit() - 0xDC00);
                }
                append_utf8(result, code);
            } else {
                result += index == std::string::npos ? escaped : characters[index];
            }
        }
        expect('"');
        return result;
    }

    static void append_utf8(std::string& text, unsigned code) {
        const int num_more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        static const unsigned heads[] = {0x00, 0xC0, 0xE0, 0xF0};
        text += static_cast<char>(heads[num_more] | (code >> (6 * num_more)));
        for (int i = num_more - 1; i >= 0; --i)
            text += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
    }

    const std::string& text_;
    std::size_t position_ = 0;
};

// Compiles the model of a deployed folder, each operation for its device.
ov::CompiledModel load(ov::Core& core, const std::string& folder) {
    const auto manifest = Json::parse(read_file(folder + "/placement.json")).as<ov::AnyMap>();
    const auto model = core.read_model(folder + "/" + manifest.at("model").as<std::string>());
    // Several devices made of one CPU are registered under their names.
    for (const auto& name : manifest.at("register").as<std::vector<ov::Any>>())
        core.register_plugin("openvino_intel_cpu_plugin", name.as<std::string>());
    const auto device = manifest.at("device").as<std::string>();
    if (device.rfind("HETERO:", 0) == 0) {
        const auto& affinity = manifest.at("affinity").as<ov::AnyMap>();
        for (const auto& op : model->get_ops())
            op->get_rt_info()["affinity"] = affinity.at(op->get_friendly_name()).as<std::string>();
    }
    return core.compile_model(model, device, manifest.at("config").as<ov::AnyMap>());
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 3) throw std::runtime_error("usage: loader FOLDER OUTPUTS [INPUT ...]");
    ov::Core core;
    auto compiled = load(core, argv[1]);
    auto request = compiled.create_infer_request();
    for (const auto& ports : {compiled.inputs(), compiled.outputs()})
        for (const auto& port : ports)
            if (port.get_element_type() == ov::element::string)
                throw std::runtime_error("this program does not read or write tensors of strings");
    const std::size_t num_inputs = compiled.inputs().size(), num_files = argc - 3;
    if (num_files != 0 && num_files != num_inputs)
        throw std::runtime_error("the model has " + std::to_string(num_inputs) + " inputs");
    for (std::size_t i = 0; i < num_inputs; ++i) {
        auto tensor = request.get_input_tensor(i);
        std::memset(tensor.data(), 0, tensor.get_byte_size());
        if (num_files == 0) continue;
        const std::string content = read_file(argv[3 + i]);
        if (content.size() != tensor.get_byte_size())
            throw std::runtime_error(std::string(argv[3 + i]) + " has not the size of the input");
        std::memcpy(tensor.data(), content.data(), content.size());
    }
    const auto begin = std::chrono::steady_clock::now();
    // `infer` discards every exception where the CPU plug-in has one thread (OpenVINO 2026.4).
    request.start_async();
    request.wait();
    const std::chrono::duration<double, std::milli> elapsed_ms =
        std::chrono::steady_clock::now() - begin;
    for (std::size_t i = 0; i < compiled.outputs().size(); ++i) {
        const auto tensor = request.get_output_tensor(i);
        const std::string path = std::string(argv[2]) + "/output_" + std::to_string(i) + ".bin";
        std::ofstream file(path, std::ios::binary);
        file.write(static_cast<const char*>(tensor.data()), tensor.get_byte_size());
        if (!file) throw std::runtime_error("cannot write " + path);
        std::cout << path << " " << tensor.get_element_type() << tensor.get_shape() << "\n";
    }
    std::cout << "first inference: " << elapsed_ms.count() << " ms\n";
    return 0;
} catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
}
