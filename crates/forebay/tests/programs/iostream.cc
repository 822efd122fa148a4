// C++ streams and std::filesystem.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>
namespace fs = std::filesystem;
int main() {
    { std::ofstream o("cpp"); for (int i = 0; i < 5000; i++) o << "line " << i << '\n'; o.seekp(5); o << "X"; std::cout << o.tellp() << '\n'; }
    std::ifstream i("cpp"); std::string s; int n = 0; while (std::getline(i, s)) n++; std::cout << n << ' ' << s << std::endl;
    i.clear(); i.seekg(-5, std::ios::end); i >> s; std::cout << s << '\n'; std::fstream rw("cpp", std::ios::in | std::ios::out | std::ios::ate); std::cout << rw.tellg() << '\n'; rw << "tail\n"; rw.seekg(0); rw >> s; std::cout << s << '\n'; rw.close();
    std::ofstream("app", std::ios::app) << "one\n"; std::ofstream("app", std::ios::app) << "two\n"; std::stringstream b; b << std::ifstream("app").rdbuf(); std::cout << b.str();
    std::cout << std::ifstream("nothere").good() << fs::exists("cpp") << fs::is_directory(".") << fs::file_size("app") << '\n';
    fs::create_directories("fs/a/b"); fs::copy_file("app", "fs/a/copy", fs::copy_options::overwrite_existing); fs::copy("fs", "fs2", fs::copy_options::recursive | fs::copy_options::update_existing); fs::rename("fs2/a/copy", "fs2/moved"); if (!fs::exists("fs/link")) fs::create_symlink("a", "fs/link");
    std::vector<std::string> names; for (auto &e : fs::recursive_directory_iterator(".")) names.push_back(e.path().string() + (e.is_directory() ? "/" : "")); std::sort(names.begin(), names.end()); for (auto &x : names) if (x.find("fs") == 2) std::cout << x << ' '; std::cout << '\n';
    std::cout << fs::remove_all("fs2") << ' ' << (fs::canonical("fs/link") == fs::current_path() / "fs/a") << ' ' << fs::read_symlink("fs/link") << ' ' << (fs::space(".").capacity > 0) << '\n'; fs::permissions("app", fs::perms::owner_read | fs::perms::owner_write); fs::resize_file("app", 3); std::cout << fs::file_size("app") << '\n'; std::cin >> s; std::cout << s << '\n';
    return 6;
}
