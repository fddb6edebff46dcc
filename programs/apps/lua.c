/* Lua in a program of the kernel. Its script is a text of this file: there are no files.
 *
 * The host runs this, too, and says the same.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>

static const char SCRIPT[] =
    /* Blanks instead of tabs, which the console shows as blanks, too. */
    "function print(...)\n"
    "  local t = table.pack(...) for i = 1, t.n do t[i] = tostring(t[i]) end\n"
    "  io.write(table.concat(t, ' '), '\\n')\n"
    "end\n"
    /* Digits of pi by a spigot: integers and tables. */
    "local n, digits, nines, held = 60, {}, 0, 0\n"
    "local a = {} for i = 1, n * 10 // 3 + 1 do a[i] = 2 end\n"
    "for _ = 1, n do\n"
    "  local q = 0\n"
    "  for i = #a, 1, -1 do\n"
    "    local x = 10 * a[i] + q * i\n"
    "    a[i] = x % (2 * i - 1) q = x // (2 * i - 1)\n"
    "  end\n"
    "  a[1] = q % 10 q = q // 10\n"
    "  if q == 9 then nines = nines + 1\n"
    "  else\n"
    "    local carry = q == 10 and 1 or 0\n"
    "    digits[#digits + 1] = held + carry\n"
    "    for _ = 1, nines do digits[#digits + 1] = carry == 1 and 0 or 9 end\n"
    "    held, nines = carry == 1 and 0 or q, 0\n"
    "  end\n"
    "end\n"
    "print(table.concat(digits, '', 2))\n"
    /* Floats, as text and back. */
    "print(('%.17g %.3f %a'):format(0.1, math.exp(1), 1 / 3), math.pi, 2^53, -0.0, 1e300 * 1e10, tonumber('0x1p-4'))\n"
    "print(math.sin(1), math.fmod(-7, 3), 7 // -2, 7 % -2, math.tointeger('8'), 3 | 4 << 60)\n"
    /* Text. */
    "print(('the quick brown fox'):gsub('(%w+) (%w+)', '%2 %1'), ('%q'):format(-7))\n"
    "print(string.pack('>I3 s1', 0x10203, 'abc'):byte(1, -1))\n"
    /* Coroutines, errors with their place, metatables. */
    "local gen = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i * i) end end)\n"
    "print(gen(), gen(), gen(), pcall(error, { 1 }, 2) == false, select(2, pcall(function() local x = nil + 1 end)))\n"
    "local V = {} V.__index = V V.__add = function(p, q) return setmetatable({ p[1] + q[1] }, V) end\n"
    "print((setmetatable({ 40 }, V) + setmetatable({ 2 }, V))[1])\n"
    /* Much garbage, of which nothing is left. */
    "collectgarbage() local before = collectgarbage('count')\n"
    "local t = {} for i = 1, 20000 do t[i % 100] = { ('x'):rep(i % 50), i } end\n"
    "t = nil collectgarbage() print('kept', collectgarbage('count') - before < 8)\n"
    /* Sorting, by a comparison in Lua. */
    "local s, r = {}, 42 for i = 1, 1000 do r = (r * 1103515245 + 12345) % 2147483648 s[i] = r end\n"
    "table.sort(s, function(x, y) return x > y end)\n"
    "local right = true for i = 2, #s do right = right and s[i - 1] >= s[i] end print('sorted', right, s[1], s[1000])\n"
    /* There are no files, and dates begin with the processor. */
    "print(io.open('/no/such/file'))\n"
    "print(os.date('!%Y-%m-%d %H:%M:%S', 86400 * 365), os.time({ year = 2000, month = 1, day = 1, hour = 12 }))\n";

int main(void)
{
    lua_State *lua = luaL_newstate();
    if (!lua)
        return 2;
    luaL_openlibs(lua);
    if (luaL_dostring(lua, SCRIPT)) {
        printf("lua: %s\n", lua_tostring(lua, -1));
        return 1;
    }
    lua_close(lua);
    printf("%s ended\n", LUA_RELEASE);
    return 0;
}
